//! Reading what the client says first, for the policies that look at it.

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tlsdyno_wire::http::{TargetReader, target_path};
use tlsdyno_wire::session_keys::{ClientReader, SessionKeys, Unreadable};

use super::Loop;
use crate::dispatch::connection::{Opening, Side};
use crate::dispatch::learn::Student;
use crate::dispatch::memory::{Memory, Object};
use crate::dispatch::places::Id;
use crate::dispatch::settings::Policy;
use crate::reactor::Interest;

/// What a backend is chosen by.
enum RoutingKey {
    Hello(SessionKeys),
    /// What a request asks for; `None`: it names no path.
    Request(Option<Object>),
}

/// Why nothing of the kind will come.
enum Mute {
    Hello(Unreadable),
    Request,
}

impl Opening {
    fn new(policy: Policy, bytes_max: usize) -> Opening {
        match policy {
            Policy::Lard => Opening::Request(TargetReader::new(bytes_max)),
            _ => Opening::Hello(ClientReader::new(bytes_max)),
        }
    }

    /// `all`: what has come so far; `piece`: the last of it.
    fn read(&mut self, all: &[u8], piece: &[u8], memory: &Memory) -> Result<Option<RoutingKey>, Mute> {
        match self {
            Opening::Hello(reader) => reader.read(piece).map(|keys| keys.map(RoutingKey::Hello)).map_err(Mute::Hello),
            Opening::Request(reader) => {
                let said = |target| RoutingKey::Request(target_path(target).map(|path| memory.object(path)));
                reader.read(all).map(|target| target.map(said)).map_err(|_| Mute::Request)
            }
        }
    }
}

impl Loop<'_> {
    /// Reads what there is of the hello or the request; connects as soon as it is whole, or cannot become one.
    pub(super) fn read_opening(&mut self, id: Id) {
        let Some(connection) = self.places.get(id) else { return };
        let settings = &self.snapshot.settings;
        let most = settings.limits.hello_bytes;
        let mut reader = connection.opening.take().unwrap_or_else(|| Box::new(Opening::new(settings.policy, most)));
        loop {
            match rustix::net::recv(&connection.client.descriptor, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((0, _)) if connection.first_bytes.is_empty() => return self.close(id),
                Ok((0, _)) => {
                    self.counts.all.not_tls.add(matches!(*reader, Opening::Hello(_)).into());
                    connection.up.note_end();
                    return self.connect_first(id);
                }
                Ok((count, _)) => {
                    connection.up.note_read(count == self.buffer.len());
                    connection.first_bytes.extend_from_slice(&self.buffer[..count]);
                    let found = reader.read(&connection.first_bytes, &self.buffer[..count], &self.shared.memory);
                    // Headers of tiny records count too: nobody may make us hold more than twice what is allowed, and
                    // one read.
                    let too_long = connection.first_bytes.len() > most * 2;
                    match found {
                        Ok(None) if !too_long && connection.up.is_readable() => {}
                        Ok(None) if !too_long => break,
                        Ok(Some(RoutingKey::Hello(keys))) => {
                            self.understand(id, &keys);
                            return self.connect_first(id);
                        }
                        Ok(Some(RoutingKey::Request(object))) => {
                            connection.object = object;
                            return self.connect_first(id);
                        }
                        Ok(None) => self.counts.all.hellos_oversized.add(1),
                        Err(Mute::Hello(Unreadable::Oversized { .. })) => self.counts.all.hellos_oversized.add(1),
                        Err(Mute::Hello(Unreadable::Malformed(_))) => self.counts.all.hellos_malformed.add(1),
                        Err(Mute::Hello(Unreadable::Records(_) | Unreadable::NoHello)) => {
                            self.counts.all.not_tls.add(1);
                        }
                        // Counted where a backend is chosen for it.
                        Err(Mute::Request) => {}
                    }
                    if found.is_err() || too_long {
                        return self.connect_first(id);
                    }
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => {
                    connection.reset_by = Some(Side::Client);
                    return self.close(id);
                }
            }
        }
        connection.opening = Some(reader);
        if !connection.client.watched {
            connection.client.watched = true;
            if self.reactor.add(&connection.client.descriptor, id.token(Side::Client), Interest::EdgeRead).is_err() {
                self.close(id);
            }
        }
    }

    pub(super) fn understand(&mut self, id: Id, keys: &SessionKeys) {
        let counts = &self.counts.all;
        counts.hellos_early_data.add(keys.early_data.into());
        counts.hellos_grease.add(keys.grease.into());
        counts.hellos_encrypted.add(keys.encrypted_hello.into());
        let offer = self.shared.memory.offer(keys);
        if let Some(connection) = self.places.get(id) {
            connection.student = Some(Box::new(Student::new(offer)));
        }
    }
}
