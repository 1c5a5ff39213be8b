//! Workers by ssh: the program goes along where it is not there yet, and each worker reaches the coordinator, which
//! stays on loopback, through a tunnel of its ssh.

use std::io::{ErrorKind, Write};
use std::net::SocketAddr;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow};
use shell_words::quote;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::foreign::visible;
use tlsdyno_base::program;

use super::launch::Order;
use super::token::{Token, hash_of};

/// Ports on the other machine for tunnels: below those that systems give to connections.
const PORT_FROM: u16 = 20_000;
const PORTS: u16 = 12_000;

/// ssh's exit code where it was ssh that failed.
const SSH_FAILED: i32 = 255;

#[derive(Debug)]
pub struct Ssh<'a> {
    /// `ssh`, and options for it.
    pub command: &'a str,
    pub hosts: &'a [String],
    /// What comes behind `tlsdyno worker`.
    pub arguments: &'a [String],
}

impl Ssh<'_> {
    /// The commands that start the workers. The program is where they need it by then.
    pub fn orders(&self, coordinator: SocketAddr, token: &Token) -> Result<Vec<Order>> {
        let program = std::fs::read(program::core()?).context("failed to read this program")?;
        let hash = hash_of(&program);
        let shipped: Vec<Result<()>> = thread::scope(|scope| {
            let (program, hash) = (program.as_slice(), hash.as_str());
            let shipping: Vec<_> =
                self.hosts.iter().map(|host| scope.spawn(move || self.ship(host, program, hash))).collect();
            shipping
                .into_iter()
                .map(|one| one.join().unwrap_or_else(|fault| std::panic::resume_unwind(fault)))
                .collect()
        });
        shipped.into_iter().collect::<Result<()>>()?;
        let mut ports = [0; 2];
        openssl::rand::rand_bytes(&mut ports).context("choose a port")?;
        let first = u16::from_le_bytes(ports) % PORTS;
        let order = |(number, host): (u16, &String)| {
            let port = PORT_FROM + first.wrapping_add(number) % PORTS;
            let (program, arguments) = (path_of(&hash), shell_words::join(self.arguments));
            let script = format!("exec {program} worker --join 127.0.0.1:{port} --token-file - {arguments}");
            let tunnel = format!("127.0.0.1:{port}:{coordinator}");
            let options = ["-o", "ExitOnForwardFailure=yes", "-R", &tunnel];
            Order {
                command: self.command_line(&options, host, &script),
                input: token.text().into_bytes(),
                undo: Vec::new(),
            }
        };
        Ok((0..).zip(self.hosts).map(order).collect())
    }

    /// ssh with these options, which runs a script on a host. Nobody is there to type a password.
    fn command_line(&self, options: &[&str], host: &str, script: &str) -> Vec<String> {
        let mut command_line: Vec<String> = self.command.split_whitespace().map(str::to_owned).collect();
        command_line.extend(["-o", "BatchMode=yes", "-o", "ServerAliveInterval=5"].map(str::to_owned));
        command_line.extend(options.iter().map(ToString::to_string));
        // Behind `--` a host is never an option. Whatever the user's shell is, `sh` reads the script.
        command_line.extend(["--".to_owned(), host.to_owned(), format!("sh -c {}", quote(script))]);
        command_line
    }

    /// Copies the program to the host, unless the host has this version.
    fn ship(&self, host: &str, program: &[u8], hash: &str) -> Result<()> {
        let path = path_of(hash);
        let look = format!("uname -sm; sha256sum < {path} 2>/dev/null | cut -c 1-64");
        let said = self.say(host, &look, &[])?;
        let mut lines = said.lines();
        let kind = lines.next().unwrap_or_default().trim().to_owned();
        let own = rustix::system::uname();
        let own = format!("{} {}", own.sysname().to_string_lossy(), own.machine().to_string_lossy());
        ensure_fault!(
            Environment,
            kind == own,
            "{host} is {}, and this program is for {own}; install tlsdyno for that there, and start it with --launch",
            visible(&kind)
        );
        if lines.next() == Some(hash) {
            return Ok(());
        }
        // Written beside it and renamed, so that nobody starts half a program; what was not used for a week goes.
        let write = format!(
            "umask 077; d=$(dirname {path}); mkdir -p \"$d\" && cat > {path}.$$ && chmod 700 {path}.$$ && mv {path}.$$ \
             {path} && find \"$d\" -name \"worker-*\" -mtime +7 ! -name worker-{hash} -delete"
        );
        self.say(host, &write, program).map(drop).with_context(|| format!("failed to copy the program to {host}"))
    }

    fn say(&self, host: &str, script: &str, input: &[u8]) -> Result<String> {
        let command_line = self.command_line(&["-C"], host, script);
        let mut child = Command::new(&command_line[0])
            .args(&command_line[1..])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("failed to run `{}`; is it installed?", command_line[0]))
            .or_fault(Fault::Environment)?;
        let given = child.stdin.take().map_or(Ok(()), |mut stdin| stdin.write_all(input));
        let output = child.wait_with_output().context("wait for ssh")?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let failed = anyhow!("`{} {host}` failed: {}", self.command, visible(said.trim()));
            // Any other code is that of the script, which ran.
            if output.status.code() != Some(SSH_FAILED) {
                return Err(Fault::Environment.wrap(failed));
            }
            let error = anyhow!(
                "{failed}. It must work without a password: try `{} -o BatchMode=yes {host} true`",
                self.command
            );
            return Err(Fault::Unreachable.wrap(error));
        }
        match given {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("write to ssh"),
            _ => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        }
    }
}

/// Where the program with this hash is on the other machine, for its shell.
fn path_of(hash: &str) -> String {
    format!("\"${{XDG_CACHE_HOME:-$HOME/.cache}}/tlsdyno/worker-{hash}\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_token_nor_option_can_come_from_a_host() {
        let arguments = ["--may-load".to_owned(), "a b".to_owned()];
        let ssh = Ssh { command: "ssh -F x", hosts: &[], arguments: &arguments };
        let command_line = ssh.command_line(&["-C"], "-oProxyCommand=x", "echo 'a'");
        assert_eq!(command_line[..3], ["ssh", "-F", "x"]);
        assert_eq!(command_line[command_line.len() - 3..], ["--", "-oProxyCommand=x", r"sh -c 'echo '\''a'\'''"]);
    }
}
