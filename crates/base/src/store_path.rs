//! Where the store of the user is.

use std::ffi::OsString;
use std::path::PathBuf;

use thiserror::Error;

/// There is no place for the store.
#[derive(Clone, Copy, Debug, Error)]
#[error("no place to keep records: neither XDG_DATA_HOME nor HOME is set. Set TLSDYNO_STORE to a file")]
pub struct NoHome;

/// The store of the user: TLSDYNO_STORE, else `tlsdyno/records.sqlite` in the XDG data directory
/// (XDG Base Directory Specification 0.8: `$XDG_DATA_HOME`, if empty or relative `$HOME/.local/share`).
pub fn default_path() -> Result<PathBuf, NoHome> {
    path_from(|name| std::env::var_os(name))
}

fn path_from(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, NoHome> {
    let set = |name| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    if let Some(path) = set("TLSDYNO_STORE") {
        return Ok(path);
    }
    let data = set("XDG_DATA_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| set("HOME").map(|home| home.join(".local/share")));
    Ok(data.ok_or(NoHome)?.join("tlsdyno/records.sqlite"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn the_store_is_where_the_environment_says() {
        let with = |set: &[(&str, &str)]| {
            let set: BTreeMap<String, OsString> =
                set.iter().map(|&(name, value)| (name.into(), value.into())).collect();
            path_from(|name| set.get(name).cloned())
                .map(|path| path.display().to_string())
                .map_err(|error| error.to_string())
        };
        assert_eq!(with(&[("TLSDYNO_STORE", "/s/my.db"), ("HOME", "/h")]).unwrap(), "/s/my.db");
        assert_eq!(with(&[("XDG_DATA_HOME", "/x"), ("HOME", "/h")]).unwrap(), "/x/tlsdyno/records.sqlite");
        assert_eq!(
            with(&[("XDG_DATA_HOME", "relative"), ("HOME", "/h")]).unwrap(),
            "/h/.local/share/tlsdyno/records.sqlite"
        );
        assert_eq!(with(&[("XDG_DATA_HOME", ""), ("HOME", "/h")]).unwrap(), "/h/.local/share/tlsdyno/records.sqlite");
        assert!(with(&[]).unwrap_err().contains("Set TLSDYNO_STORE"));
    }
}
