//! What is put into a server to replace or to double stages, and what it counts.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tlsdyno_native::{
    Counters, Doubled, Doubling, DoublingCounters, Handed, Injection, ShimCounters, ShimInjection, Unpacked,
};
use tlsdyno_record::model::ConfigurationModel;
use tlsdyno_tls::Stage;

/// The libraries in a server that count what handshakes call.
#[derive(Default)]
pub struct Instruments {
    /// The provider.
    pub provider: Option<Injection>,
    /// The shim.
    pub shim: Option<ShimInjection>,
    /// The doubler.
    pub doubler: Option<Doubling>,
}

/// What they have counted up to some moment, or since an earlier one. `None`: the library is not in the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    /// By the provider.
    pub provider: Option<Counters>,
    /// By the shim.
    pub shim: Option<ShimCounters>,
    /// By the doubler.
    pub doubler: Option<DoublingCounters>,
}

impl Instruments {
    /// What must be mapped in every worker: what it is, and its library.
    pub fn libraries(&self) -> Vec<(&'static str, PathBuf)> {
        let all = [("provider", self.provider.as_deref()), ("shim", self.shim.as_deref())];
        let all = all.into_iter().chain([("doubler", self.doubler.as_deref())]);
        all.filter_map(|(name, library)| Some((name, library?.library_path().to_owned()))).collect()
    }

    /// What a server needs to load them. Provider and doubler are never both there.
    pub fn handed(&self) -> Handed {
        let wrapping = self.provider.as_deref().or(self.doubler.as_deref());
        let [wrapping, shim] = [wrapping, self.shim.as_deref()].map(|of| of.map(Unpacked::handed).unwrap_or_default());
        wrapping.and(shim)
    }

    /// Lets the server be as this configuration says, from its next connection on.
    ///
    /// # Errors
    /// The memory shared with it cannot be written.
    pub fn set_mode(&self, mode: &ConfigurationModel) -> Result<()> {
        if let Some(shim) = &self.shim {
            shim.set_mode(mode.noop)?;
        }
        if let Some(doubler) = &self.doubler {
            doubler.set_mode(doubled_by(mode))?;
        }
        let Some(provider) = &self.provider else { return Ok(()) };
        provider.set_burn_ns(mode.burn_ns())?;
        provider.set_mode(mode.noop)
    }

    /// What was counted until now.
    ///
    /// # Errors
    /// The memory shared with the server cannot be read.
    pub fn counted(&self) -> Result<Counted> {
        Ok(Counted {
            provider: self.provider.as_ref().map(Injection::counters).transpose()?,
            shim: self.shim.as_ref().map(ShimInjection::counters).transpose()?,
            doubler: self.doubler.as_ref().map(Doubling::counters).transpose()?,
        })
    }

    /// The same once it stands still: the server may still be busy with the end of an earlier connection.
    ///
    /// # Errors
    /// As [`Instruments::counted`].
    pub fn settled(&self) -> Result<Counted> {
        const PAUSE: Duration = Duration::from_millis(5);
        const PAUSES_MAX: u32 = 40;
        let mut counted = self.counted()?;
        if counted == Counted::default() {
            return Ok(counted);
        }
        for _ in 0..PAUSES_MAX {
            std::thread::sleep(PAUSE);
            let later = self.counted()?;
            if later == counted {
                break;
            }
            counted = later;
        }
        Ok(counted)
    }

    /// Whether handshakes went through the OpenSSL that the server has mapped. `None`: what is in there would not tell.
    ///
    /// # Errors
    /// As [`Instruments::counted`].
    pub fn saw_handshakes(&self) -> Result<Option<bool>> {
        let counted = self.counted()?;
        let counts_kdf = self.provider.as_ref().is_some_and(|provider| provider.stages().contains(Stage::Kdf));
        // No handshake does without a key schedule, and nothing else derives keys so.
        let seen = [
            counted.shim.map(|counters| counters.iter().any(|(.., count)| count > 0)),
            counted.doubler.map(|counters| counters.calls(Stage::Kdf) > 0),
            counted.provider.filter(|_| counts_kdf).map(|counters| counters.total(Stage::Kdf) > 0),
        ];
        Ok(seen.into_iter().flatten().reduce(|one, other| one || other))
    }
}

impl Counted {
    /// What was counted after `earlier`.
    #[must_use]
    pub fn since(self, earlier: Counted) -> Counted {
        Counted {
            provider: self.provider.zip(earlier.provider).map(|(now, before)| now - before),
            shim: self.shim.zip(earlier.shim).map(|(now, before)| now - before),
            doubler: self.doubler.zip(earlier.doubler).map(|(now, before)| now - before),
        }
    }
}

/// What a configuration computes twice.
pub fn doubled_by(model: &ConfigurationModel) -> Doubled {
    Doubled { stages: model.doubled.unwrap_or_default(), copies: model.copies }
}
