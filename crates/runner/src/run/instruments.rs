//! What is put into a server to replace or to double stages, and what it counts.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use tlsdyno_native::{
    Counters, Doubled, Doubling, DoublingCounters, Handed, Injection, ShimCounters, ShimInjection, Unpacked,
};
use tlsdyno_record::model::ConfigurationModel;
use tlsdyno_tls::Stage;

#[derive(Default)]
pub struct Instruments {
    pub provider: Option<Injection>,
    pub shim: Option<ShimInjection>,
    pub doubler: Option<Doubling>,
}

/// Counters up to a moment, or since an earlier one. `None`: the library is not in the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub provider: Option<Counters>,
    pub shim: Option<ShimCounters>,
    pub doubler: Option<DoublingCounters>,
}

impl Instruments {
    /// Libraries that must be mapped in every worker, each with its name in messages.
    pub fn libraries(&self) -> Vec<(&'static str, PathBuf)> {
        let all = [("provider", self.provider.as_deref()), ("shim", self.shim.as_deref())];
        let all = all.into_iter().chain([("doubler", self.doubler.as_deref())]);
        all.filter_map(|(name, library)| Some((name, library?.library_path().to_owned()))).collect()
    }

    /// What a server needs to load the libraries. Provider and doubler exclude each other.
    pub fn handed(&self) -> Handed {
        let wrapping = self.provider.as_deref().or(self.doubler.as_deref());
        let [wrapping, shim] = [wrapping, self.shim.as_deref()].map(|of| of.map(Unpacked::handed).unwrap_or_default());
        wrapping.and(shim)
    }

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

    pub fn counted(&self) -> Result<Counted> {
        Ok(Counted {
            provider: self.provider.as_ref().map(Injection::counters).transpose()?,
            shim: self.shim.as_ref().map(ShimInjection::counters).transpose()?,
            doubler: self.doubler.as_ref().map(Doubling::counters).transpose()?,
        })
    }

    /// Counters once they stand still: the server may still be busy with the end of an earlier connection.
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

    /// Whether handshakes went through the OpenSSL that the server has mapped. `None`: no library would show it.
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
    /// Difference from an earlier reading.
    #[must_use]
    pub fn since(self, earlier: Counted) -> Counted {
        Counted {
            provider: self.provider.zip(earlier.provider).map(|(now, before)| now - before),
            shim: self.shim.zip(earlier.shim).map(|(now, before)| now - before),
            doubler: self.doubler.zip(earlier.doubler).map(|(now, before)| now - before),
        }
    }
}

/// Stages that a configuration computes twice.
pub fn doubled_by(model: &ConfigurationModel) -> Doubled {
    Doubled { stages: model.doubled.unwrap_or_default(), copies: model.copies }
}
