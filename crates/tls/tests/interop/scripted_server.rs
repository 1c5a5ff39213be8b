//! The server's side of skeletons, played from scripts as the contract has it (docs/NOOP.md).

use tlsdyno_tls::{Script, Scripts};

use crate::harness::{Server, View, answer};

/// Flights as long as those of TLS 1.3, in full and resumed.
pub fn scripts() -> Scripts {
    Scripts {
        full: Script { flights: vec![243, 1363, 80, 510], ready_after: 3 },
        resumed: Some(Script { flights: vec![514, 241, 80, 255], ready_after: 3 }),
    }
}

/// The same of TLS 1.2.
pub fn scripts_12() -> Scripts {
    Scripts {
        full: Script { flights: vec![206, 1206, 93, 258], ready_after: 4 },
        resumed: Some(Script { flights: vec![430, 141, 51], ready_after: 3 }),
    }
}

/// A server that plays a script, as the contract has it: what it received of the client's flights and data.
pub struct ScriptedServer {
    scripts: Scripts,
    input: Vec<u8>,
    requests: Vec<u8>,
    output: Vec<u8>,
    /// Kind, and the flight that is awaited or sent next.
    at: Option<(u8, usize)>,
    /// Sent in front of the first answer.
    prefix: Vec<u8>,
}

impl ScriptedServer {
    pub fn new(scripts: Scripts) -> ScriptedServer {
        ScriptedServer {
            scripts,
            input: Vec::new(),
            requests: Vec::new(),
            output: Vec::new(),
            at: None,
            prefix: Vec::new(),
        }
    }

    pub fn script(&self, kind: u8) -> &Script {
        if kind == 0 { &self.scripts.full } else { self.scripts.resumed.as_ref().unwrap() }
    }

    fn take_first(&mut self) -> Option<u8> {
        let length = 5 + usize::from(u16::from_be_bytes([*self.input.get(3)?, *self.input.get(4)?]));
        assert_eq!(&self.input[..3], [0x16, 3, 1]);
        assert_eq!(self.input[5], 0xd5);
        let kind = self.input[6];
        assert_eq!(length as u32, self.script(kind).flights[0], "kind {kind}");
        let first: Vec<u8> = self.input.drain(..length).collect();
        let reply = self.script(kind).flights[1] as usize;
        assert!(first[7..].iter().all(|&byte| byte == 0));
        if kind == 2 {
            self.prefix = skeleton(reply as u32);
        }
        Some(kind)
    }
}

/// A flight of the size: zeros behind the type of a handshake's records.
pub fn skeleton(bytes: u32) -> Vec<u8> {
    let mut flight = vec![0; bytes as usize];
    flight[0] = 0x16;
    flight
}

impl Server for ScriptedServer {
    fn receive(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
        if self.at.is_none() {
            self.at = self.take_first().map(|kind| (kind, 1));
        }
        while let Some((kind @ 0..=1, next)) = self.at {
            let Some(&size) = self.script(kind).flights.get(next) else { break };
            if next % 2 == 1 {
                self.output.extend(skeleton(size));
            } else if self.input.len() >= size as usize {
                let flight: Vec<u8> = self.input.drain(..size as usize).collect();
                assert!(flight == skeleton(size));
            } else {
                break;
            }
            self.at = Some((kind, next + 1));
        }
        if self.view().connected {
            self.requests.append(&mut self.input);
            let answers = answer(&mut self.requests);
            if !answers.is_empty() {
                self.output.append(&mut self.prefix);
            }
            self.output.extend(answers);
        }
    }

    fn take_output(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    fn close(&mut self) {}

    fn view(&self) -> View {
        let connected = self.at.is_some_and(|(kind, next)| kind > 1 || next == self.script(kind).flights.len());
        View { connected, resumed: self.at.is_some_and(|(kind, _)| kind > 0), ..View::default() }
    }
}
