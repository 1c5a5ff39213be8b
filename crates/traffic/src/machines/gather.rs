//! Gets the workers together that are asked for, by whatever starts them.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use tlsdyno_base::fault::{Fault, OrFault, fault_of};
use tlsdyno_base::listening::is_loopback;
use tlsdyno_base::{interrupt, program};
use tlsdyno_record::model::{Engine, WorkersModel};

use super::carried::Packer;
use super::crew::Workers;
use super::kubernetes::{Lookout, Pods};
use super::launch::{self, Launched};
use super::slurm;
use super::ssh::Ssh;
use super::token::Token;
use crate::load::threads::Threads;

#[derive(Debug)]
pub struct Gathered {
    pub workers: Workers,
    launched: Launched,
    _token_file: Option<TokenFile>,
}

/// A token file, removed in the end: nobody is let in by it any more.
#[derive(Debug)]
struct TokenFile {
    path: PathBuf,
    /// Device and file number: what lies there in the end may be another's.
    file: (u64, u64),
}

impl TokenFile {
    fn write(token: &Token, path: &Path) -> Result<TokenFile> {
        let about = token.write(path)?;
        let path = std::path::absolute(path).context("failed to find the working directory")?;
        Ok(TokenFile { path, file: (about.dev(), about.ino()) })
    }
}

impl Drop for TokenFile {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|about| (about.dev(), about.ino()) == self.file) {
            // Who took it away already has done the same.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

impl Drop for Gathered {
    fn drop(&mut self) {
        // What started them is ended afterwards, with what is left of them.
        self.workers.dismiss();
    }
}

/// What each worker of a load is given: the hosts that the user answers for, and its loops.
pub fn arguments_of_worker(may_load: &[String], threads: Option<Threads>) -> Vec<String> {
    let mut arguments: Vec<String> = may_load.iter().flat_map(|host| ["--may-load".to_owned(), host.clone()]).collect();
    arguments.extend(threads.iter().flat_map(|threads| ["--threads".to_owned(), threads.to_string()]));
    arguments
}

/// What the engine Kubernetes would be given for workers of this image, as JSON.
pub fn manifest(model: &WorkersModel, image: &str, may_load: &[String], threads: Option<Threads>) -> Result<String> {
    let arguments = arguments_of_worker(may_load, threads);
    let address = model.listen.map_or("COORDINATOR:0".to_owned(), |listen| listen.0.to_string());
    // The system chooses one for each run.
    let address = address.strip_suffix(":0").map_or(address.clone(), |host| format!("{host}:PORT"));
    let (name, workers) = (&name_of_job()?, model.count());
    let pods = Pods { name, image, address: &address, workers, arguments: &arguments };
    Ok(serde_json::to_string_pretty(&pods.manifest(None))? + "\n")
}

/// One that no other load has, on this machine or another: whoever takes it away again takes it by its name.
fn name_of_job() -> Result<String> {
    let mut bytes = [0; 8];
    openssl::rand::rand_bytes(&mut bytes).context("failed to name the job")?;
    Ok(format!("tlsdyno-{:016x}", u64::from_le_bytes(bytes)))
}

/// Gets the workers together that are asked for, which will have to load this server. `packer`: what was packed for
/// them already; `arguments`: what each is given.
pub fn gather(
    model: &WorkersModel,
    packer: Packer,
    target: SocketAddr,
    arguments: &[String],
    stop: &AtomicBool,
) -> Result<Gathered> {
    if (model.engine.is_some() || !model.on.is_empty()) && is_loopback(target.ip()) {
        tell!("warning: {target} is each worker's own machine");
    }
    let listen = model.listen.map_or((Ipv4Addr::LOCALHOST, 0).into(), |listen| listen.0);
    let workers = Workers::listen(listen, model.count(), model.on_loss, packer).or_fault(Fault::Environment)?;
    let token_file = model.token_file.as_ref().map(|path| TokenFile::write(&workers.token, path));
    let token_file = token_file.transpose().or_fault(Fault::Usage)?;
    let address = workers.address.to_string();
    let (name, image) = (name_of_job()?, model.image.clone().unwrap_or_default());
    let pods = Pods { name: &name, image: &image, address: &address, workers: model.count(), arguments };
    let launched = launched(model, &workers, &pods).or_fault(Fault::Environment)?;
    let mut gathered = Gathered { workers, launched, _token_file: token_file };
    let lookout = (model.engine == Some(Engine::Kubernetes)).then(|| Lookout::new(&pods));
    gathered.wait_for_all(Duration::from_nanos(model.join_within.nanoseconds()?), lookout, stop)?;
    Ok(gathered)
}

/// Runs what starts the workers; `pods` has what every way to start them needs.
fn launched(model: &WorkersModel, workers: &Workers, pods: &Pods) -> Result<Launched> {
    let (&Pods { address, workers: count, arguments, .. }, token) = (pods, &workers.token);
    if !model.on.is_empty() {
        let ssh = Ssh { command: &model.ssh, hosts: &model.on, arguments };
        return launch::run(ssh.orders(workers.address, token)?);
    }
    if let Some(template) = &model.launch {
        return launch::by_template(template, address, token, count);
    }
    match (model.engine, &model.token_file) {
        (Some(Engine::Slurm), _) => {
            let order = slurm::order(&program::core()?.to_string_lossy(), address, count, arguments, token);
            launch::run(vec![order])
        }
        (Some(Engine::Kubernetes), _) => launch::run(vec![pods.order(token)]),
        (None, Some(path)) => {
            tell!("waiting for {count} workers: tlsdyno worker --join {address} --token-file {}", path.display());
            Ok(Launched::default())
        }
        (None, None) => {
            let error = anyhow!(
                "nothing starts the {count} workers; give --launch COMMAND or --engine, or --token-file FILE and start \
                 them yourself"
            );
            Err(Fault::Usage.wrap(error))
        }
    }
}

impl Gathered {
    /// Waits until all workers have joined, as long as that can be hoped for.
    fn wait_for_all(&mut self, within: Duration, mut lookout: Option<Lookout>, stop: &AtomicBool) -> Result<()> {
        let Gathered { workers, launched, .. } = self;
        let is_well = || {
            interrupt::check(stop).context("stopped before all workers had joined")?;
            launched.check()?;
            match lookout.as_mut().and_then(Lookout::hopeless) {
                Some(why) => Err(Fault::Environment.wrap(anyhow!(why))),
                None => Ok(()),
            }
        };
        let Err(error) = workers.gather(within, is_well).or_fault(Fault::Unreachable) else { return Ok(()) };
        if fault_of(&error) != Some(Fault::Unreachable) {
            return Err(error);
        }
        let output = launched.output();
        let error =
            if output.is_empty() { error } else { error.context(format!("what starts workers wrote: {output}")) };
        Err(match lookout.as_ref().and_then(|lookout| lookout.missing.clone()) {
            Some(why) => error.context(why),
            None => error,
        })
    }
}
