//! The CPU time of a server on another machine, as a worker there sees it.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result, ensure};
use tlsdyno_record::model::WorkersModel;
use tlsdyno_record::model::worker::{Look, Seen};

use super::carried::Packer;
use super::gather::{Gathered, gather};

/// A worker that is asked. A thread attends to it meanwhile: it would leave a coordinator that is silent for 5 s.
#[derive(Debug)]
pub struct FarCpu {
    /// `None` once it is over.
    asks: Option<(Sender<Look>, UnixStream)>,
    answers: Receiver<Result<Seen>>,
    thread: Option<JoinHandle<()>>,
}

impl FarCpu {
    /// Waits for the one worker that is asked for. It reads the CPU time of `pid`, or of whoever listens at `server`.
    pub fn gather(model: &WorkersModel, server: SocketAddr, pid: Option<u32>, stop: &AtomicBool) -> Result<FarCpu> {
        let process = pid.map_or_else(|| server.to_string(), |pid| pid.to_string());
        let arguments = ["--cpu-of".to_owned(), process];
        let gathered = gather(model, Packer::default(), server, &arguments, stop)?;
        let (woken, wakes) = UnixStream::pair().context("make a pair of sockets")?;
        let (asks, asked) = channel();
        let (tells, answers) = channel();
        let thread = thread::spawn(move || attend(&gathered, &asked, &woken, &tells));
        Ok(FarCpu { asks: Some((asks, wakes)), answers, thread: Some(thread) })
    }

    /// What the worker sees.
    pub fn observe(&mut self, look: Look) -> Result<Seen> {
        let (asks, wakes) = self.asks.as_mut().context("the worker was dismissed")?;
        ensure!(asks.send(look).is_ok(), "nobody attends to the worker any more");
        wakes.write_all(&[0]).context("wake who attends to the worker")?;
        self.answers.recv().context("nobody attends to the worker any more")?
    }
}

impl Drop for FarCpu {
    fn drop(&mut self) {
        self.asks = None;
        if let Some(thread) = self.thread.take() {
            // It says goodbye to the worker, and waits for what started that. One that panicked has said so.
            let _ = thread.join();
        }
    }
}

/// Serves requests until nobody asks any more.
fn attend(gathered: &Gathered, asked: &Receiver<Look>, mut woken: &UnixStream, tells: &Sender<Result<Seen>>) {
    let never = AtomicBool::new(false);
    while gathered.workers.attend(woken.as_fd(), &never).is_ok() {
        let _ = woken.read(&mut [0]);
        let Ok(look) = asked.recv() else { return };
        if tells.send(gathered.workers.observe(look)).is_err() {
            return;
        }
    }
}
