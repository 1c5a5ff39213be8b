//! A server of Go's with work of a known amount in it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use super::injected::{Found, LOAD, found};
use super::*;

const IMPORTS: &str = "\nimport (\n\t\"strconv\"\n\t\"sync/atomic\"\n\t\"syscall\"\n\t\"unsafe\"\n";
/// Tells the mean µs of each work every fifth of a second.
const TELL: &str = r#"
	go func() {
		us := func(ns, times *atomic.Int64) float64 { return float64(ns.Load()) / 1e3 / float64(max(times.Load(), 1)) }
		for range time.Tick(time.Second / 5) {
			signature, agreement := us(&ecdsa.BurntNs, &ecdsa.BurntTimes), us(&ecdh.BurntNs, &ecdh.BurntTimes)
			fmt.Println(signature, agreement, us(&BurntNs, &BurntTimes))
		}
	}()
"#;

/// The Go server with work in crypto/ecdsa, in crypto/ecdh and before each answer, as much as BURN_ecdsa and so on say.
pub fn burning_go(place: &Path) -> PathBuf {
    let text = |command: &str| {
        let output = Command::new("sh").args(["-c", command]).output().unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let root = text("go env GOROOT");
    let burning = |path: &str, package: &str, function: &str| {
        let source = fs::read_to_string(path).unwrap();
        let changed =
            source.replacen("\nimport (\n", IMPORTS, 1).replacen(function, &format!("{function}\n\tburn()"), 1);
        assert_eq!(changed.matches("burn()").count(), 1, "{path}");
        changed + &include_str!("burn.go").replace("PACKAGE", package)
    };
    let mut replaced = serde_json::Map::new();
    for (package, file, function) in [
        (
            "ecdsa",
            "ecdsa.go",
            "\nfunc (priv *PrivateKey) Sign(random io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {",
        ),
        ("ecdh", "ecdh.go", "\nfunc (k *PrivateKey) ECDH(remote *PublicKey) ([]byte, error) {"),
    ] {
        let (path, ours) = (format!("{root}/src/crypto/{package}/{file}"), place.join(file));
        fs::write(&ours, burning(&path, package, function)).unwrap();
        replaced.insert(path, ours.to_str().unwrap().into());
    }
    let main = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/traffic/stacks/go/main.go");
    let main = burning(
        main,
        "page",
        "head := fmt.Sprintf(\"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\n\\r\\n\", len(body))",
    );
    let more = format!("{IMPORTS}\t\"crypto/ecdh\"\n\t\"crypto/ecdsa\"\n\t\"time\"\n");
    let main = main.replacen(IMPORTS, &more, 1).replacen(
        "fmt.Println(listener.Addr())",
        &format!("fmt.Println(listener.Addr()){TELL}"),
        1,
    );
    let (source, overlay, program) = (place.join("burning.go"), place.join("overlay.json"), place.join("burning"));
    fs::write(&source, main).unwrap();
    fs::write(&overlay, serde_json::json!({ "Replace": replaced }).to_string()).unwrap();
    let mut build = Command::new("go");
    build.args([Path::new("build"), Path::new("-overlay"), &overlay, Path::new("-o"), &program, &source]);
    assert!(build.env("GOTOOLCHAIN", "local").env("GOFLAGS", "-mod=mod").status().unwrap().success());
    program
}

/// What is found of so much work in it, nanoseconds, beside what it was for each handshake; a loop takes about a
/// nanosecond.
pub fn in_go(place: &Place, program: &Path, [signature, agreement, page]: [u64; 3]) -> (Found, [f64; 3]) {
    let files = certificates::create(CertificateKind::P256, place.path()).unwrap();
    let mut server = Command::new(program);
    server.args([Path::new("-certificate"), &files.chain, Path::new("-key"), &files.key]);
    server.arg("-object").arg(place.docroot().join("hello.txt")).env("GOMAXPROCS", "1");
    for (name, loops) in [("ecdsa", signature), ("ecdh", agreement), ("page", page / 3)] {
        server.env(format!("BURN_{name}"), loops.to_string());
    }
    let mut server = server.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines().map_while(Result::ok);
    let at = lines.next().unwrap().parse().unwrap();
    let seen = told(place, at, "20", &LOAD, || ());
    server.kill().unwrap();
    server.wait().unwrap();
    let last = lines.last().unwrap();
    let us: Vec<f64> = last.split(' ').map(|word| word.parse().unwrap()).collect();
    (found(&seen), [us[0], us[1], 3.0 * us[2]])
}
