//! The local socket on which a running dispatcher tells its status: HTTP/1.0 over a Unix socket, so that curl and
//! Prometheus' proxies understand it.

mod clients;

use std::fs::{File, Metadata};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tlsdyno_engine::dispatch::Shared;
use tlsdyno_sys as sys;

pub use self::clients::{CLIENTS_MAX, RESERVE};
use super::status::{Status, prometheus};
use tlsdyno_base::fault::{Fault, OrFault};

/// How long somebody who asks waits for the answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// The socket; its file is removed in the end.
pub struct Control {
    listener: UnixListener,
    /// Descriptors for bad times, until [`Control::serve`] has them. They are opened before the first connection is
    /// accepted: a busy machine may start the control's thread long after that, when nothing is left to keep.
    reserve: Mutex<Vec<File>>,
    /// What is written to the first ends [`Control::serve`], which watches the second.
    wake: (UnixStream, UnixStream),
    path: PathBuf,
    /// The file that this socket made.
    file: Metadata,
}

impl Control {
    /// Binds the socket, only for the own user. A socket that a dead dispatcher left is replaced; nothing else is.
    ///
    /// # Errors
    /// [`Fault::Environment`]: another dispatcher has it, something else has its name, or the directory is not
    /// writable.
    pub fn bind(path: &Path) -> Result<Control> {
        let bind = || -> Result<Control> {
            let listener = match UnixListener::bind(path) {
                Err(error) if error.kind() == ErrorKind::AddrInUse => {
                    remove_stale(path)?;
                    UnixListener::bind(path)?
                }
                bound => bound?,
            };
            listener.set_nonblocking(true)?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
            let file = std::fs::symlink_metadata(path)?;
            let mut reserve = Vec::with_capacity(RESERVE);
            clients::fill(&mut reserve);
            let reserve = Mutex::new(reserve);
            Ok(Control { listener, reserve, wake: UnixStream::pair()?, path: path.to_owned(), file })
        };
        bind()
            .with_context(|| format!("failed to open the control socket {}", path.display()))
            .or_fault(Fault::Environment)
    }

    pub fn serve(&self, shared: &Shared) {
        let answer = |request: &[u8]| answer(request, shared);
        let reserve = self.reserve.lock().map(|mut reserve| std::mem::take(&mut *reserve)).unwrap_or_default();
        clients::serve(&self.listener, &self.wake.1, &answer, &shared.control_waits, reserve);
    }

    /// Ends [`Control::serve`].
    pub fn wake(&self) {
        let _ = (&self.wake.0).write(b"w");
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // The name may be another's by now: somebody removed our socket, and put something else there.
        let is_ours = |found: &Metadata| (found.dev(), found.ino()) == (self.file.dev(), self.file.ino());
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| is_ours(&found)) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn remove_stale(path: &Path) -> Result<()> {
    let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
    ensure!(
        is_socket,
        "there is something else of that name, which is no socket and stays as it is; choose another path for the \
         control socket, or move it away yourself"
    );
    match UnixStream::connect(path) {
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => Ok(std::fs::remove_file(path)?),
        Err(error) => {
            Err(error).context("it cannot be told whether anybody listens there, so it stays; choose another path")
        }
        Ok(_) => bail!("another dispatcher uses it; choose another path"),
    }
}

fn answer(request: &[u8], shared: &Shared) -> Vec<u8> {
    let request = String::from_utf8_lossy(request);
    let status = || Status::of(shared, (sys::monotonic_ns() / 1_000_000_000 + 1) as u32);
    let (code, kind, body) = match request.split(' ').nth(1) {
        Some("/status") => match serde_json::to_string(&status()) {
            Ok(json) => ("200 OK", "application/json", json),
            Err(error) => ("500 Internal Server Error", "text/plain", format!("{error}\n")),
        },
        Some("/metrics") => ("200 OK", "text/plain; version=0.0.4", prometheus(shared, &status())),
        _ => ("404 Not Found", "text/plain", "there are /status and /metrics\n".to_owned()),
    };
    let length = body.len();
    let head =
        format!("HTTP/1.0 {code}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    (head + &body).into_bytes()
}

/// Asks the dispatcher behind a socket for `/status` or `/metrics`.
///
/// # Errors
/// [`Fault::Unreachable`]: nobody answers there.
pub fn ask(path: &Path, what: &str) -> Result<String> {
    let ask = || -> Result<String> {
        let mut stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        write!(stream, "GET {what} HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let (head, body) = answer.split_once("\r\n\r\n").context("it answered no HTTP")?;
        ensure!(head.starts_with("HTTP/1.0 200"), "it answered {}", head.lines().next().unwrap_or_default());
        Ok(body.to_owned())
    };
    ask()
        .with_context(|| format!("no dispatcher answers on {}; is it running, with this --control?", path.display()))
        .or_fault(Fault::Unreachable)
}
