//! Building what a recipe says: step by step, each kept, so that a build that was ended goes on where it was.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use rustix::io::{FdFlags, fcntl_setfd};
use sha2::{Digest, Sha256};
use tlsdyno_base::fault::{Fault, OrFault};

use super::home;
use super::recipe::Recipe;
use super::source::hex;

/// Lowest priority: other programs come first.
const NICENESS: &str = "19";
/// Lines of a build's log that an error shows.
const TAIL: usize = 8;

impl Recipe {
    /// What it is made of, and each step. What is done is kept in these words: of another recipe nothing is done yet.
    fn wanted(&self) -> Result<Vec<String>> {
        let library = self.library().map_or(Ok(Vec::new()), Recipe::wanted)?;
        let made_of = serde_json::to_vec(&(&self.source, self.added()?, library))?;
        let first = [Ok(hex(&Sha256::digest(made_of)))].into_iter();
        first.chain(self.steps.iter().map(|step| self.filled(step))).collect()
    }

    fn done(&self) -> Result<Vec<String>> {
        let text = fs::read_to_string(self.place()?.join("done")).unwrap_or_default();
        Ok(text.lines().map(str::to_owned).collect())
    }

    pub fn is_built(&self) -> Result<bool> {
        Ok(!self.steps.is_empty() && self.done()? == self.wanted()?)
    }

    /// Builds it and its library, unless that is done.
    pub fn build(&self) -> Result<()> {
        if self.is_built()? {
            return Ok(());
        }
        self.library().map_or(Ok(()), Recipe::build)?;
        let (place, wanted, mut done) = (self.place()?, self.wanted()?, self.done()?);
        let tree = place.join("tree");
        if done.is_empty() || !wanted.starts_with(&done) || !tree.exists() {
            done = vec![wanted[0].clone()];
            self.lay(&place, &tree)?;
            keep(&place, &done)?;
        }
        let folder = self.source.as_ref().map_or("", |source| source.folder.as_str());
        let began = Instant::now();
        for step in &wanted[done.len()..] {
            tell!("{}: step {} of {}", self.file, done.len(), wanted.len() - 1);
            perform(step, &tree.join(folder), &place.join("log"))
                .with_context(|| format!("{} was not built", self.file))
                .or_fault(Fault::Environment)?;
            done.push(step.clone());
            keep(&place, &done)?;
        }
        tell!("{}: built in {:.1} minutes", self.file, began.elapsed().as_secs_f64() / 60.0);
        fs::remove_dir_all(&tree).with_context(|| format!("remove {}", tree.display()))
    }

    /// Puts the source into a new directory.
    fn lay(&self, place: &Path, tree: &Path) -> Result<()> {
        if place.exists() {
            fs::remove_dir_all(place).with_context(|| format!("remove {}", place.display()))?;
        }
        fs::create_dir_all(tree).with_context(|| format!("make {}", tree.display())).or_fault(Fault::Environment)?;
        fs::create_dir(place.join("installed"))?;
        tell!("{}: fetching and unpacking", self.file);
        self.source.as_ref().map_or(Ok(()), |source| source.unpack(tree))?;
        for (name, text) in self.added()? {
            let path = tree.join(name);
            fs::create_dir_all(path.parent().unwrap_or(tree))?;
            fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        }
        Ok(())
    }
}

/// Keeps what is done, the whole of it or nothing.
fn keep(place: &Path, done: &[String]) -> Result<()> {
    let (new, path) = (place.join("done.new"), place.join("done"));
    fs::write(&new, done.join("\n")).and_then(|()| fs::rename(&new, &path)).context("keep what is done")
}

fn perform(step: &str, directory: &Path, log: &Path) -> Result<()> {
    let file = File::options().create(true).append(true).open(log)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let mut command = Command::new("nice");
    command.args(["-n", NICENESS, "sh", "-ec", step]).current_dir(directory).env("JOBS", jobs.to_string());
    let status = command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).status().context("run a shell")?;
    let said = fs::read(log).unwrap_or_default();
    let said = String::from_utf8_lossy(&said);
    let lines: Vec<&str> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(TAIL)..].join("\n");
    let failed = || format!("`{step}`: {status}. The end of {}:\n{last}", log.display());
    status.success().then_some(()).with_context(failed)
}

/// Waits until nobody else builds here. What a step started holds it, too, so that what is left of a build that was
/// killed ends before the next one begins.
pub fn alone() -> Result<File> {
    let home = home()?;
    let open = || -> io::Result<File> {
        fs::create_dir_all(&home)?;
        File::create(home.join("lock"))
    };
    let file = open().with_context(|| format!("make {}", home.display())).or_fault(Fault::Environment)?;
    fcntl_setfd(&file, FdFlags::empty())?;
    if file.try_lock().is_err() {
        tell!("Another build goes on in {}; this one waits for it.", home.display());
        file.lock()?;
    }
    Ok(file)
}
