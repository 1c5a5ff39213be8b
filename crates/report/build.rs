//! Packs the viewer of reports: a fifth of a megabyte in the binary in place of nearly one.

use std::io::Write;
use std::path::Path;

use flate2::Compression;
use flate2::write::GzEncoder;

/// The viewer, in the order in which a page must load it (versions and licences: `assets/vega/README.md`).
const VIEWER: [&str; 3] = ["vega.min.js", "vega-lite.min.js", "vega-embed.min.js"];

fn main() -> std::io::Result<()> {
    let to = Path::new(&std::env::var_os("OUT_DIR").expect("cargo names it")).join("viewer.js.gz");
    let mut packed = GzEncoder::new(std::fs::File::create(to)?, Compression::best());
    for name in VIEWER {
        let script = std::fs::read_to_string(Path::new("assets/vega").join(name))?;
        // A browser's developer tools would try to fetch what a reference to a source map names.
        for line in script.lines().filter(|line| !line.starts_with("//# sourceMappingURL")) {
            writeln!(packed, "{line}")?;
        }
    }
    packed.finish()?;
    println!("cargo:rerun-if-changed=assets/vega");
    Ok(())
}
