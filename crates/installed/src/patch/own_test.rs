//! Patched files before the server's own test (`nginx -t`), in a view of the file system in which they stand in the
//! place of the files that are there, and nothing is changed.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tlsdyno_record::model::{CertificateKind, ServerName};

use tlsdyno_servers::programs::run_held;
use tlsdyno_servers::view::View;
use tlsdyno_servers::{certificates, driver_of};

use super::New;
use crate::{apache, bytes_of};

/// How long a test may take: nginx asks for the names of its applications.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) fn tried(
    server: ServerName,
    path: &Path,
    changed: &BTreeMap<PathBuf, String>,
    new: &[New],
) -> Result<String> {
    let path = path.canonicalize().with_context(|| format!("find {}", path.display()))?;
    let (flags, variables) = match server {
        ServerName::Nginx => ("-t -q -c", BTreeMap::new()),
        ServerName::Haproxy => ("-c -f", BTreeMap::new()),
        ServerName::Lighttpd => ("-tt -f", BTreeMap::new()),
        _ => ("-t -f", apache::variables_beside(&path)),
    };
    let package = driver_of(server).package.context("a server has a package")?;
    let test = format!("`{} {flags} {}`", package.programs[0], path.display());
    let Some(program) = package.installed() else { return Ok(format!("{test} was not run: it is not installed")) };
    let scratch = tempfile::tempdir().context("make a directory")?;
    let (mut shown, examples) = (Vec::new(), examples(new, scratch.path())?);
    for (number, (file, text)) in changed.iter().enumerate() {
        let text = examples.iter().fold(text.clone(), |text, (example, own)| text.replace(example, own));
        let own = scratch.path().join(number.to_string());
        fs::write(&own, bytes_of(&text)).with_context(|| format!("write {}", own.display()))?;
        shown.push((own, file.clone()));
    }
    let run = |shown| {
        let arguments: Vec<_> = flags.split(' ').map(Into::into).chain([path.clone().into()]).collect();
        let view = View { layered: true, shown, ..View::default() };
        // lighttpd runs commands of its files; others ask for names of applications.
        let output = run_held(&program, &arguments, PATIENCE, view, &variables, server == ServerName::Lighttpd)?;
        let words = [output.out, output.error].concat();
        anyhow::Ok((!output.status.success()).then(|| String::from_utf8_lossy(&words).trim().to_owned()))
    };
    Ok(match run(shown) {
        Err(why) => format!("{test} was not run: {why:#}"),
        Ok(None) => format!("{test} accepts them, with a certificate of ours where yours is not there yet"),
        Ok(Some(why)) if run(Vec::new())?.is_some() => format!("{test} refuses them, and yours as they are: {why}"),
        Ok(Some(why)) => bail!("{test} refuses the patched files: {why}"),
    })
}

/// Files that new lines name and that are not there yet, each with what stands in for it.
fn examples(new: &[New], scratch: &Path) -> Result<Vec<(String, String)>> {
    let own = scratch.join("example.pem");
    certificates::create(CertificateKind::P256, scratch)?.write_in_one(&own)?;
    let words = new.iter().flat_map(|new| new.directive().split([' ', ';', '"'])).filter(|word| word.starts_with('/'));
    let missing = words.filter(|word| !Path::new(word).exists());
    Ok(missing.map(|word| (word.to_owned(), own.display().to_string())).collect())
}
