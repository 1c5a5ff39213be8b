//! Tables of what directives do, held against the servers' own lists of their directives.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use tlsdyno::installed::Installed;

/// What the copy of this configuration says that it does not know.
fn unknown(program: &str, text: &str) -> Option<String> {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("configuration");
    fs::write(&path, text).unwrap();
    let told = Installed::read(&path, Some(program)).unwrap().effects().unwrap();
    told.into_iter().find(|sentence| sentence.contains("is not known"))
}

fn said(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(tlsdyno::servers::programs::find(program).unwrap()).args(arguments).output().unwrap();
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn every_keyword_of_haproxy_is_known() {
    let all = said("haproxy", &["-dKall", "-c", "-f", "/dev/null"]);
    let (_, all) = all.split_once("# List of registered configuration keywords:\n").unwrap();
    let (all, _) = all.split_once("# List of").unwrap();
    let (mut global, mut proxy) = (Vec::new(), Vec::new());
    let mut section = "";
    for line in all.lines() {
        match line.strip_prefix('\t') {
            None => section = line,
            // Words of these lines are lists of their own.
            Some(of) if of.starts_with("bind ") || of.starts_with("server ") => {}
            Some(of) if section == "global" => global.push(of),
            Some(of) if section == "listen" => proxy.push(of.split(" [").next().unwrap().trim_end_matches('*')),
            Some(_) => {}
        }
    }
    assert!(global.len() > 50 && proxy.len() > 200, "{all}");
    // Words that say nothing without the next one.
    proxy.retain(|word| !["filter", "option", "tcp-request", "tcp-response"].contains(word));
    let lines = |words: &[&str]| words.iter().map(|word| format!("  {word} x\n")).collect::<String>();
    let text = format!("global\n{}listen l\n bind :443 ssl crt x\n{}", lines(&global), lines(&proxy));
    assert_eq!(unknown("haproxy", &text), None);
    assert!(unknown("haproxy", &(text + "  strange x\n")).unwrap().ends_with(": strange"));
}

#[test]
fn every_directive_of_apache_is_known() {
    let directory =
        ["/usr/lib/apache2/modules", "/etc/httpd/modules"].map(Path::new).into_iter().find(|at| at.is_dir());
    let entries = fs::read_dir(directory.unwrap()).unwrap().map(|entry| entry.unwrap().path());
    let mut modules: Vec<_> = entries.filter(|path| path.extension().is_some_and(|ending| ending == "so")).collect();
    // Some need others, whose names come before.
    modules.sort_unstable();
    let place = tempfile::tempdir().unwrap();
    let at = place.path().display();
    let mut names = BTreeSet::new();
    for mpm in ["mpm_event", "mpm_prefork"] {
        let mut text = format!("ServerRoot {at}\nServerName x\nErrorLog {at}/e\nLoadModule {mpm}_module ");
        for path in [Path::new(&format!("mod_{mpm}.so"))].into_iter().chain(modules.iter().map(|path| &**path)) {
            let file = path.file_name().unwrap().to_string_lossy();
            let module = file.trim_start_matches("mod_").trim_end_matches(".so");
            let path = directory.unwrap().join(path);
            match module {
                _ if module == mpm && text.ends_with(' ') => text += &format!("{}\n", path.display()),
                // Others are of other packages, each with a name of its own.
                _ if module.starts_with("mpm_") || !has_symbol(&path, &format!("{module}_module")) => {}
                _ => text += &format!("LoadModule {module}_module {}\n", path.display()),
            }
        }
        let path = place.path().join("all.conf");
        fs::write(&path, text).unwrap();
        let all = said("apache2", &["-f", &path.display().to_string(), "-L"]);
        let is_directive = |line: &&str| line.ends_with(".c)") && !line.starts_with('\t');
        names.extend(all.lines().filter(is_directive).map(|line| line.split(' ').next().unwrap().to_owned()));
    }
    assert!(names.len() > 500, "{names:?}");
    let mut text = "Listen 443\nSSLEngine on\n".to_owned();
    // One that is refused says so.
    let refused =
        ["MDomain", "MDomainSet", "<MDomain", "<MDomainSet", "Include", "IncludeOptional", "ServerRoot", "Use"];
    for name in names.iter().filter(|name| !refused.contains(&name.as_str())) {
        match name.strip_prefix('<') {
            // It asks for a version.
            Some("IfVersion") => text += "<IfVersion >= 0>\n</IfVersion>\n",
            Some(section) => text += &format!("<{section} x>\n</{section}>\n"),
            None => text += &format!("{name} x\n"),
        }
    }
    text += "SSLEngine on\n";
    assert_eq!(unknown("apache2", &text), None);
    assert!(unknown("apache2", &(text + "Strange x\n")).unwrap().ends_with(": Strange"));
}

fn has_symbol(library: &Path, name: &str) -> bool {
    let bytes = fs::read(library).unwrap();
    let wanted = [b"\0", name.as_bytes(), b"\0"].concat();
    bytes.windows(wanted.len()).any(|window| window == wanted)
}

#[test]
fn every_setting_of_lighttpd_is_known() {
    // Names of features, of statistics and of files stand among those of settings.
    const OTHERS: [&str; 10] = [
        "auth.delay-invalid-creds",
        "cgi.tempfile-accum",
        "proxy.force-http10",
        "server.clock-jump-restart",
        "server.errorlog-high-precision",
        "server.graceful-shutdown-timeout",
        "server.h1-discard-backend-1xx",
        "server.h2-discard-backend-1xx",
        "server.metrics-high-precision",
        "server.c",
    ];
    const OF_SETTINGS: &str = "accesslog ajp13 alias auth cgi connection debug deflate dir-listing etag evhost expire \
        extforward fastcgi index-file maxminddb mimetype proxy rrdtool scgi server setenv simple-vhost sockproxy ssi \
        ssl static-file status url userdir vhostdb webdav wstunnel magnet";
    let modules = fs::read_dir("/usr/lib/lighttpd").unwrap().map(|entry| entry.unwrap().path());
    let files = modules.chain([tlsdyno::servers::programs::find("lighttpd").unwrap()]);
    let mut names = BTreeSet::new();
    for bytes in files.map(|path| fs::read(path).unwrap()) {
        for word in bytes.split(|byte| *byte == 0).filter_map(|word| std::str::from_utf8(word).ok()) {
            let is_name =
                word.contains('.') && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte));
            let first = word.split('.').next().unwrap_or_default();
            if is_name && OF_SETTINGS.split(' ').any(|name| name == first) && !word.ends_with(".requests") {
                names.insert(word.to_owned());
            }
        }
    }
    names.retain(|name| !OTHERS.contains(&name.as_str()));
    assert!(names.len() > 150, "{names:?}");
    // It looks at values: for each name the first of these that it takes.
    const VALUES: [&str; 7] =
        ["\"x\"", "\"disable\"", "\"enable\"", "1", "(\"x\")", "(\"x\" => \"y\")", "(\"x\" => (\"y\" => \"z\"))"];
    let own = ["server.port", "server.document-root", "ssl.engine", "server.modules", "server.http-parseopts"];
    let mut values: Vec<(String, usize)> =
        names.into_iter().filter(|name| !own.contains(&name.as_str())).map(|name| (name, 0)).collect();
    let text = |values: &[(String, usize)]| {
        let settings = values.iter().map(|(name, at)| format!("{name} = {}\n", VALUES[*at])).collect::<String>();
        let fixed = "server.document-root = \"/x\"\nserver.port = 443\nssl.engine = \"enable\"\n\
                     server.modules = (\"mod_access\")\nserver.http-parseopts = (\"url-normalize\" => \"enable\")\n";
        format!("{fixed}{settings}")
    };
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("lighttpd.conf");
    loop {
        fs::write(&path, text(&values)).unwrap();
        let refused = said("lighttpd", &["-p", "-f", &path.display().to_string()]);
        // Beside what it prints of the file.
        let refused = refused.lines().filter(|line| line.contains(".c.")).collect::<String>();
        let words: BTreeSet<&str> = refused.split([' ', '\n', '(', ')', ',', ':', ';', '\'', '"']).collect();
        let mut has_changed = false;
        for (_, at) in values.iter_mut().filter(|(name, at)| words.contains(&**name) && *at + 1 < VALUES.len()) {
            (*at, has_changed) = (*at + 1, true);
        }
        if !has_changed {
            break;
        }
    }
    assert_eq!(unknown("lighttpd", &text(&values)), None);
    assert!(unknown("lighttpd", &(text(&values) + "strange.x = \"x\"\n")).unwrap().ends_with(": strange.x"));
}
