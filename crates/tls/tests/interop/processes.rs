//! Servers in processes of their own, and connections to them over Unix sockets, so that no test needs a free port.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use openssl::pkey::PKey;
use openssl::x509::X509;
use tempfile::TempDir;
use tlsdyno_tls::{Config, Error, Session};

use crate::harness::{Caller, KeyKind, identity, pattern};

/// How long any one step may take before the test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A server process that ends with the test, and its private directory.
pub struct Process {
    pub child: Child,
    pub directory: TempDir,
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Process {
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("socket")
    }

    pub fn call(&self, config: &Arc<Config>, session: Option<Session>) -> Call {
        Call::new(UnixStream::connect(self.socket()).unwrap(), config, session)
    }
}

/// A server that prints a line about each connection.
pub struct Reporter {
    process: Process,
    lines: BufReader<ChildStdout>,
}

impl Reporter {
    /// Starts one on the files in `directory`; it says when it listens.
    pub fn start(command: &mut Command, directory: TempDir) -> Reporter {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        let mut reporter = Reporter { process: Process { child, directory }, lines };
        assert_eq!(reporter.line(), "listening");
        reporter
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// A connection with some answers, and what the server says of it.
    pub fn exchange(&mut self, config: &Arc<Config>, session: Option<Session>) -> (Caller, String) {
        let mut call = self.process.call(config, session);
        call.ask();
        (call.caller, self.line())
    }
}

/// A client's connection over a socket.
pub struct Call {
    stream: UnixStream,
    pub caller: Caller,
}

impl Call {
    /// Shakes hands.
    pub fn new(stream: UnixStream, config: &Arc<Config>, session: Option<Session>) -> Call {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut call = Call { stream, caller: Caller::new(config, session) };
        call.until(|caller| caller.client.is_connected());
        call
    }

    /// Asks for answers of several lengths, as [`crate::harness::answer`] gives them.
    pub fn ask(&mut self) {
        for length in [1, 100, 40_000] {
            self.caller.taken.data.clear();
            self.caller.request(length);
            self.until(|caller| caller.taken.data.len() >= length);
            assert!(self.caller.taken.data == pattern(length));
        }
    }

    pub fn until(&mut self, done: impl Fn(&Caller) -> bool) {
        loop {
            self.stream.write_all(&std::mem::take(&mut self.caller.output)).unwrap();
            if done(&self.caller) {
                return;
            }
            let mut buffer = [0; 4096];
            let length = self.stream.read(&mut buffer).expect("the server answers in time");
            let result: Result<(), Error> = match length {
                0 => self.caller.client.end_of_input(),
                _ => self.caller.receive(&mut buffer[..length]),
            };
            result.unwrap();
            assert!(length > 0 || done(&self.caller), "the server closed");
        }
    }
}

/// Private directory with the identity as PEM files `certificate.pem` and `key.pem`.
pub fn directory_with(key: KeyKind) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let identity = identity(key);
    let certificate = X509::from_der(&identity.certificate_der).unwrap().to_pem().unwrap();
    std::fs::write(directory.path().join("certificate.pem"), certificate).unwrap();
    let key = PKey::private_key_from_pkcs8(&identity.key_pkcs8).unwrap();
    std::fs::write(directory.path().join("key.pem"), key.private_key_to_pem_pkcs8().unwrap()).unwrap();
    directory
}
