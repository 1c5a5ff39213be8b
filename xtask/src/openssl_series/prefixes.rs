//! Installations of OpenSSL with shared libraries, for `tlsdyno ablate --library`: by one recipe with the same flags,
//! from the sources that Debian keeps of its releases.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tlsdyno_lab::stacks::apt;

use super::{install, step};

/// Debian's release with each series.
const RELEASES: [(&str, &str); 2] = [("3.0", "bookworm"), ("3.5", "trixie")];
/// Builds what is not built yet, and says where it is.
pub fn make(series: &[String], work: &Path) -> Result<()> {
    for name in series {
        let known = RELEASES.map(|(series, _)| series).join(", ");
        let release = RELEASES.iter().find(|(of, _)| of == name).map(|(_, release)| *release);
        let release = release.with_context(|| format!("no prefix is made of OpenSSL {name}; known are {known}"))?;
        let place = work.join(format!("{name}-shared"));
        let prefix = install(&place, &format!("{name} of Debian's {release}"), |tree| {
            let mut unpack = Command::new("tar");
            unpack.arg("xzf").arg(apt::source("openssl", "", release, &place)?);
            unpack.args(["--strip-components=1", "-C"]).arg(tree);
            step(&mut unpack, "tar", tree)?;
            let mut configure = Command::new("./Configure");
            configure.arg("no-tests");
            Ok(configure)
        })?;
        ensure!(prefix.join("lib/libssl.so.3").exists(), "no shared libraries in {}", prefix.display());
        println!("{}", prefix.display());
    }
    Ok(())
}
