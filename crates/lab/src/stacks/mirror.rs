//! Where this machine gets Debian's packages from: another release comes from there too.

use std::process::Command;

use anyhow::{Context, Result, ensure};

/// Asked of apt: each index of packages, with the release that it is of.
const INDEX_FORMAT: &str = "$(LABEL) $(REPO_URI)";

#[derive(Clone, Debug, PartialEq)]
pub struct Mirror {
    pub debian: String,
    /// `None`: this machine has no archive of security updates among its sources.
    pub security: Option<String>,
}

impl Mirror {
    pub fn of_this_machine() -> Result<Mirror> {
        let mut apt = Command::new("apt-get");
        apt.args(["indextargets", "--format", INDEX_FORMAT, "Created-By: Packages"]);
        let output = apt.output().context("cannot run apt-get; this needs Debian")?;
        ensure!(output.status.success(), "{apt:?}:\n{}", String::from_utf8_lossy(&output.stderr));
        Mirror::found_in(&String::from_utf8_lossy(&output.stdout))
            .context("apt has no index of a Debian archive on this machine; run `apt-get update` on a Debian system")
    }

    fn found_in(indices: &str) -> Option<Mirror> {
        let address = |label: &str| {
            let of_label = |line: &str| line.strip_prefix(label)?.strip_prefix(' ').map(str::to_owned);
            indices.lines().find_map(of_label)
        };
        Some(Mirror { debian: address("Debian")?, security: address("Debian-Security") })
    }

    /// `sources.list` for a release.
    pub fn sources(&self, release: &str) -> String {
        let Mirror { debian, security } = self;
        let security = security.iter().map(|security| format!("deb {security} {release}-security main\n"));
        format!("deb {debian} {release} main\ndeb {debian} {release}-updates main\n") + &security.collect::<String>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archives_are_known_by_their_labels() {
        let indices =
            "Node http://a.example/node\nDebian-Security http://b.example/security/\nDebian http://b.example/debian/\n";
        let mirror = Mirror::found_in(indices).unwrap();
        assert_eq!(mirror.debian, "http://b.example/debian/");
        let sources = mirror.sources("trixie");
        assert!(sources.contains("deb http://b.example/debian/ trixie-updates main\n"), "{sources}");
        assert!(sources.ends_with("deb http://b.example/security/ trixie-security main\n"), "{sources}");
        assert_eq!(Mirror::found_in("Node http://a.example/node\n"), None);
        assert_eq!(Mirror::found_in("Debian http://b.example/debian\n").unwrap().security, None);
    }
}
