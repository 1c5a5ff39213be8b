//! A distribution in a directory: made once, entered for each command in a mount namespace of its own, which goes with
//! the last process in it, however that ends.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use tlsdyno::servers::DRIVERS;
use tlsdyno_lab::stacks::mirror::Mirror;

use crate::tlsdyno::{target, workspace};

/// All that `make test` does not install itself.
pub const PACKAGES_TO_BUILD: &[&str] = &["make", "ca-certificates"];
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";
/// Kills what follows when xtask is gone, and keeps the mounts of what follows to itself.
const PRIVATE: [&str; 7] = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"];
/// Mounts what programs need in the directory `$1`, with the options `$2` also what is named until `--`, each at its
/// own path, makes it the root (tests make namespaces of their own, which a mere chroot refuses), and becomes the rest
/// of the arguments in the directory that is named first. What is temporary stays in memory.
const ENTER: &str = r#"set -e
root=$1 options=$2 place=$3
shift 2
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
while [ "$1" != -- ]; do
    mkdir -p "$root$1"
    mount --bind --options "$options" "$1" "$root$1"
    shift
done
shift
cd "$root"
pivot_root . mnt
exec chroot . sh -c 'umount -l /mnt && cd "$0" && exec "$@"' "$place" "$@""#;

/// Debian's packages of the servers, with nothing that these only recommend.
pub fn packages_of_servers() -> Vec<&'static str> {
    let of_drivers = DRIVERS.iter().filter_map(|driver| driver.package).flat_map(|package| package.debian.split(' '));
    let packages: BTreeSet<&str> = of_drivers.chain(["openssl"]).collect();
    packages.into_iter().collect()
}

pub struct Root {
    name: &'static str,
    packages: Vec<&'static str>,
    directory: PathBuf,
}

impl Root {
    /// The one in `work` that is for this `purpose`, made first where it is not there, or not whole, or of other
    /// packages.
    pub fn made(
        name: &'static str,
        purpose: &str,
        packages: Vec<&'static str>,
        work: &Path,
        mirror: impl Fn() -> Result<Mirror>,
    ) -> Result<Root> {
        let directory = work.join(format!("{name}{purpose}"));
        let beside = |ending: &str| directory.with_extension(ending);
        let (complete, log) = (beside("complete"), beside("log"));
        let root = Root { name, packages, directory };
        let packages = root.packages.join(" ");
        if fs::read_to_string(&complete).is_ok_and(|made_of| made_of == packages) {
            return Ok(root);
        }
        eprintln!("{name}: making it in {} (see {})", root.directory.display(), log.display());
        root.make(&mirror()?, &log)?;
        fs::write(&complete, packages).with_context(|| format!("cannot write {}", complete.display()))?;
        Ok(root)
    }

    fn make(&self, mirror: &Mirror, log: &Path) -> Result<()> {
        let file = fs::File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        let step = |mut command: Command| -> Result<()> {
            let status = command.stdout(file.try_clone()?).stderr(file.try_clone()?).status();
            let status = status.with_context(|| format!("cannot run {command:?}"))?;
            ensure!(status.success(), "{command:?}: {status}; see {}", log.display());
            Ok(())
        };
        let mut remove = Command::new("rm");
        remove.args(["-rf", "--one-file-system"]).arg(&self.directory);
        step(remove)?;
        let mut debootstrap = private();
        debootstrap.args(["debootstrap", "--variant=minbase", self.name]).arg(&self.directory).arg(&mirror.debian);
        step(debootstrap)?;
        let write = |path: &str, text: &str| {
            let path = self.directory.join(path);
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
        };
        write("etc/apt/sources.list", &mirror.sources(self.name))?;
        // Refuses to start the servers that are installed.
        write("usr/sbin/policy-rc.d", "#!/bin/sh\nexit 101\n")?;
        fs::set_permissions(self.directory.join("usr/sbin/policy-rc.d"), fs::Permissions::from_mode(0o755))?;
        let mut update = self.enter("ro", &[target()]);
        update.args(["apt-get", "update", "-q"]);
        step(update)?;
        let mut install = self.enter("ro", &[target()]);
        install.args(["apt-get", "install", "-y", "-q", "--no-install-recommends"]).args(&self.packages);
        install.env("DEBIAN_FRONTEND", "noninteractive");
        step(install)
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A program from `target`, to be run inside.
    pub fn command(&self, program: &Path) -> Command {
        let mut command = self.enter("ro", &[target()]);
        command.arg(program);
        command
    }

    /// `make test` of this checkout, built inside by this machine's Rust.
    pub fn make_test(&self) -> Command {
        let home = |variable: &str, name: &str| {
            let in_home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(name);
            std::env::var_os(variable).map_or_else(in_home, PathBuf::from)
        };
        let (cargo, rustup) = (home("CARGO_HOME", ".cargo"), home("RUSTUP_HOME", ".rustup"));
        let mut command = self.enter("rw", &[workspace().to_owned(), cargo.clone(), rustup.clone()]);
        command.env("PATH", format!("{}/bin:{PATH}", cargo.display()));
        command.envs([("CARGO_HOME", cargo), ("RUSTUP_HOME", rustup), ("CARGO_TARGET_DIR", "/var/tmp/target".into())]);
        command.args(["make", "test"]);
        command
    }

    /// The C library of this machine must not be newer than that inside.
    pub fn require_running(&self, tlsdyno: &Path) -> Result<()> {
        let output = self.command(tlsdyno).arg("--version").output().context("cannot run setpriv (util-linux)")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.success(),
            "tlsdyno as built here does not run on {}: {}; build it on the oldest of the distributions",
            self.name,
            said.trim()
        );
        Ok(())
    }

    /// What follows is run inside, in the first of these directories, which are there too; with nothing of this
    /// process's environment but its proxies.
    fn enter(&self, options: &str, shared: &[PathBuf]) -> Command {
        let mut command = private();
        command.args(["sh", "-c", ENTER, "sh"]).arg(&self.directory).arg(options).args(shared).arg("--");
        let proxies = ["http_proxy", "https_proxy", "no_proxy"];
        let kept = proxies.into_iter().filter_map(|name| Some((name, std::env::var_os(name)?)));
        command.env_clear().envs(kept.collect::<Vec<_>>());
        command.envs([("PATH", PATH), ("HOME", "/tmp"), ("LC_ALL", "C.UTF-8")]);
        command
    }
}

fn private() -> Command {
    let mut command = Command::new(PRIVATE[0]);
    command.args(&PRIVATE[1..]);
    command
}
