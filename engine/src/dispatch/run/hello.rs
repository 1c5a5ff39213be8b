//! Reading what the client says first, for the policies that look at it.

use rustix::io::Errno;
use rustix::net::RecvFlags;
use tlsdyno_wire::session_keys::{ClientReader, SessionKeys, Unreadable};

use super::Loop;
use crate::dispatch::connection::Side;
use crate::dispatch::learn::Student;
use crate::dispatch::places::Id;
use crate::reactor::Interest;

impl Loop<'_> {
    /// Reads what there is of the hello; connects as soon as it is whole, or cannot become one.
    pub(super) fn read_hello(&mut self, id: Id) {
        let Some(connection) = self.places.get(id) else { return };
        let most = self.snapshot.settings.limits.hello_bytes;
        let mut reader = connection.hello.take().unwrap_or_else(|| Box::new(ClientReader::new(most)));
        loop {
            match rustix::net::recv(&connection.client.descriptor, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((0, _)) if connection.first_bytes.is_empty() => return self.close(id),
                Ok((0, _)) => {
                    self.counts.all.not_tls.add(1);
                    connection.up.note_end();
                    return self.connect_first(id);
                }
                Ok((count, _)) => {
                    connection.up.note_read(count == self.buffer.len());
                    connection.first_bytes.extend_from_slice(&self.buffer[..count]);
                    let found = reader.read(&self.buffer[..count]);
                    // Headers of tiny records count too: nobody may make us hold more than twice what is allowed, and one read.
                    let too_long = connection.first_bytes.len() > most * 2;
                    match found {
                        Ok(None) if !too_long && connection.up.is_readable() => {}
                        Ok(None) if !too_long => break,
                        Ok(Some(keys)) => {
                            self.understand(id, &keys);
                            return self.connect_first(id);
                        }
                        Ok(None) => self.counts.all.hellos_oversized.add(1),
                        Err(Unreadable::Oversized { .. }) => self.counts.all.hellos_oversized.add(1),
                        Err(Unreadable::Malformed(_)) => self.counts.all.hellos_malformed.add(1),
                        Err(Unreadable::Records(_) | Unreadable::NoHello) => self.counts.all.not_tls.add(1),
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
        connection.hello = Some(reader);
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
