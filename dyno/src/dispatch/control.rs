//! The local socket on which a running dispatcher tells its status: HTTP/1.0 over a Unix socket, so that curl and Prometheus' proxies understand it.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_engine::dispatch::Shared;
use tlsdyno_engine::sys;

use super::status::{Status, prometheus};
use crate::exit::{Exit, OrExit};

/// How long a client may take to ask or to listen.
const PATIENCE: Duration = Duration::from_secs(1);
/// Pause when nobody can be let in, because descriptors have run out.
const RETRY_ACCEPTING: Duration = Duration::from_millis(50);
/// Longest request that is read; the path is at its beginning.
const REQUEST_BYTES: usize = 4096;

/// The socket; its file is removed in the end.
pub struct Control {
    listener: UnixListener,
    /// Given up when descriptors have run out: that is when people ask what goes on.
    reserve: Mutex<Option<File>>,
    path: PathBuf,
}

impl Control {
    /// Binds the socket, only for the own user. A file that a dead dispatcher left is replaced.
    ///
    /// # Errors
    /// [`Exit::Environment`]: another dispatcher has it, or the directory is not writable.
    pub fn bind(path: &Path) -> Result<Control> {
        let bind = || -> Result<UnixListener> {
            match UnixListener::bind(path) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    if UnixStream::connect(path).is_ok() {
                        bail!("another dispatcher uses it; choose another path");
                    }
                    std::fs::remove_file(path)?;
                    Ok(UnixListener::bind(path)?)
                }
                bound => Ok(bound?),
            }
        };
        let listener = bind().with_context(|| format!("failed to open the control socket {}", path.display()));
        let listener = listener.or_exit(Exit::Environment)?;
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600)).context("protect the control socket")?;
        Ok(Control { listener, reserve: Mutex::new(reserve()), path: path.to_owned() })
    }

    /// Answers until somebody connects after `shared` came to its end.
    pub fn serve(&self, shared: &Shared, policy: &dyn Fn() -> String, ended: &dyn Fn() -> bool) {
        let mut held = self.reserve.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in self.listener.incoming() {
            if ended() {
                return;
            }
            match stream {
                // A client that goes away or is slow loses its answer, nothing else.
                Ok(stream) => drop(answer(stream, shared, policy)),
                Err(_) if held.take().is_some() => continue,
                // Without a descriptor the next attempt would fail at once, again and again.
                Err(_) => std::thread::sleep(RETRY_ACCEPTING),
            }
            if held.is_none() {
                *held = reserve();
            }
        }
    }

    /// Ends [`Control::serve`] by connecting once more.
    pub fn wake(&self) {
        let _ = UnixStream::connect(&self.path);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A descriptor for bad times.
fn reserve() -> Option<File> {
    File::open("/dev/null").ok()
}

fn answer(mut stream: UnixStream, shared: &Shared, policy: &dyn Fn() -> String) -> std::io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut request = [0; REQUEST_BYTES];
    let mut have = 0;
    while have < REQUEST_BYTES && !request[..have].windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut request[have..])? {
            0 => break,
            count => have += count,
        }
    }
    let request = String::from_utf8_lossy(&request[..have]);
    let status = Status::of(shared, policy(), (sys::monotonic_ns() / 1_000_000_000 + 1) as u32);
    let (code, kind, body) = match request.split(' ').nth(1) {
        Some("/status") => {
            ("200 OK", "application/json", serde_json::to_string(&status).map_err(std::io::Error::other)?)
        }
        Some("/metrics") => ("200 OK", "text/plain; version=0.0.4", prometheus(shared, &status)),
        _ => ("404 Not Found", "text/plain", "there are /status and /metrics\n".to_owned()),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.0 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

/// Asks the dispatcher behind a socket for `/status` or `/metrics`.
///
/// # Errors
/// [`Exit::Unreachable`]: nobody answers there.
pub fn ask(path: &Path, what: &str) -> Result<String> {
    let ask = || -> Result<String> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE * 5))?;
        write!(stream, "GET {what} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("it answered no HTTP")?;
        ensure!(head.starts_with("HTTP/1.0 200"), "it answered {}", head.lines().next().unwrap_or_default());
        Ok(body.to_owned())
    };
    ask()
        .with_context(|| format!("no dispatcher answers on {}; is it running, with this --control?", path.display()))
        .or_exit(Exit::Unreachable)
}
