//! Where a store is: a file, or a PostgreSQL server by its URL.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Error, Result, anyhow};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::store_path;

use super::ServerUrl;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    File(PathBuf),
    Server(Box<ServerUrl>),
}

impl Address {
    /// The store of the user: `probe.sqlite` beside the store of records.
    ///
    /// # Errors
    /// The environment names no place.
    pub fn of_user() -> Result<Address> {
        let records = store_path::default_path().or_fault(Fault::Store)?;
        Ok(Address::File(records.with_file_name("probe.sqlite")))
    }

    /// Where robots on this store keep their spools and locks: beside a file; on this machine for a server.
    ///
    /// # Errors
    /// The environment names no place.
    pub fn robots_directory(&self) -> Result<PathBuf> {
        let (path, mut name) = match self {
            Address::File(path) => {
                let path = real(path);
                let name = path.file_name().unwrap_or_default().to_owned();
                (path, name)
            }
            Address::Server(url) => {
                let records = store_path::default_path().or_fault(Fault::Store)?;
                (records, format!("probe-{}", url.digest()).into())
            }
        };
        name.push(".robots");
        Ok(path.with_file_name(name))
    }

    /// This address with this file for the server's password.
    ///
    /// # Errors
    /// It is a file, which has no password.
    pub fn with_password_file(self, path: Option<&Path>) -> Result<Address> {
        match (self, path) {
            (address, None) => Ok(address),
            (Address::Server(mut url), Some(path)) => {
                url.set_password_file(path);
                Ok(Address::Server(url))
            }
            (Address::File(_), Some(_)) => {
                Err(anyhow!("a password goes with --store postgres://…; a file needs none")).or_fault(Fault::Usage)
            }
        }
    }
}

/// The one name of a file that may not be there yet: two robots on it must meet, whatever links they came by.
fn real(path: &Path) -> PathBuf {
    const LINKS_MAX: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        let Ok(target) = std::fs::read_link(&path) else { break };
        path = path.parent().unwrap_or(Path::new("")).join(target);
    }
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match (std::fs::canonicalize(directory), path.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => path,
    }
}

impl FromStr for Address {
    type Err = Error;

    fn from_str(text: &str) -> Result<Address> {
        if ServerUrl::is_one(text) {
            return text.parse().map(Box::new).map(Address::Server);
        }
        match text {
            "" => Err(anyhow!("a store has a name")),
            _ => Ok(Address::File(text.into())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::File(path) => path.display().fmt(f),
            Address::Server(url) => url.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_have_no_place_in_a_url_and_are_not_repeated() {
        for text in ["postgres://me:secret@db/x", "postgresql://db/x?password=secret", "postgres://me:secret@[db/x"] {
            let error = text.parse::<Address>().unwrap_err().to_string();
            assert!(!error.contains("secret"), "{error}");
        }
        let address: Address = "postgres://me@db.example:5433/x?sslmode=verify-full".parse().unwrap();
        assert_eq!(address.to_string(), "postgres://me@db.example:5433/x?sslmode=verify-full");
        assert!(
            "postgres://db/x?sslmode=sometimes".parse::<Address>().unwrap_err().to_string().contains("verify-full")
        );
        let file: Address = "probe.sqlite".parse().unwrap();
        assert_eq!(file, Address::File("probe.sqlite".into()));
        assert!(file.robots_directory().unwrap().ends_with("probe.sqlite.robots"));
        file.with_password_file(Some(Path::new("x"))).unwrap_err();
    }

    #[test]
    fn a_store_is_the_same_by_whatever_name_it_is_called() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir(path("deep")).unwrap();
        for (target, link) in [("deep", "way"), ("deep/probe.sqlite", "first"), ("first", "second")] {
            std::os::unix::fs::symlink(target, path(link)).unwrap();
        }
        let robots = |name: &str| Address::File(path(name)).robots_directory().unwrap();
        for is_there in [false, true] {
            for name in ["first", "second", "way/probe.sqlite", "way/../deep/./probe.sqlite"] {
                assert_eq!(robots(name), robots("deep/probe.sqlite"), "{name} {is_there}");
            }
            std::fs::write(path("deep/probe.sqlite"), "").unwrap();
        }
        assert_ne!(robots("deep/other.sqlite"), robots("deep/probe.sqlite"));
    }
}
