//! What servers with stages of the shim need of real handshakes.

use anyhow::{Context, Result};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_native::{Handed, ShimInjection};
use tlsdyno_servers::ServerSpec;
use tlsdyno_tls::{Stage, StageSet};

use super::Testbed;
use crate::run::recording::{self, Recording};

impl Testbed {
    /// Gives a configuration the parts of real handshakes that its stages need: recorded on an untouched server with
    /// the same TLS settings, which runs for this only.
    pub(super) fn give_recording(&mut self, index: usize) -> Result<()> {
        let key = (self.servers[index].tls.clone(), self.servers[index].spec.library.clone());
        let known = self.recordings.iter().find(|(of, _)| *of == key).map(|(_, recording)| recording.clone());
        let recording = match known {
            Some(recording) => recording,
            None => {
                let recording = self.record(index).or_fault(Fault::Server)?;
                self.recordings.push((key, recording.clone()));
                recording
            }
        };
        let host = self.host(index);
        let is_first = !self.servers.iter().any(|other| other.host == Some(host) && other.has_scripts());
        if let Some(shim) = self.servers[host].instruments.shim.as_ref().filter(|_| is_first) {
            shim.set_scripts(Some(&recording.scripts.full), recording.scripts.resumed.as_ref())?;
        }
        let server = &mut self.servers[index];
        server.foreign_session = recording.session;
        if let Some(settings) = &mut server.settings {
            settings.scripts = Some(recording.scripts);
        }
        Ok(())
    }

    fn record(&self, index: usize) -> Result<Recording> {
        let server = &self.servers[index];
        let settings = server.settings.as_ref().context("plain HTTP has no handshakes to record")?;
        let untouched = ServerSpec { handed: Handed::default(), ..server.spec.clone() };
        let instance = tlsdyno_servers::start(&untouched, self.directory.path())
            .context("failed to start an untouched server to record its handshakes")?;
        let (request, _) = self.preflight_request();
        let recording = recording::record(instance.address(), settings, &request)?;
        instance.stop()?;
        Ok(recording)
    }

    /// Makes the universal session of a perfect cache, by the first connection in the life of its server.
    pub fn make_universal(&mut self, index: usize) -> Result<()> {
        let (resumable, (request, _)) = (self.can_resume(index), self.preflight_request());
        let server = &mut self.servers[index];
        let stages = server.instruments.shim.as_ref().map_or(StageSet::NONE, ShimInjection::stages);
        // A skeleton has none.
        let wanted = resumable && stages.contains(Stage::SessionCache) && !stages.contains(Stage::Handshake);
        if let Some(settings) = server.settings.as_mut().filter(|settings| wanted && settings.universal.is_none()) {
            let session = recording::universal_session(server.address, settings, &request).or_fault(Fault::Server)?;
            settings.universal = Some(session);
        }
        Ok(())
    }
}
