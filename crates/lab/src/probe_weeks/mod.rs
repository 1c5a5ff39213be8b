//! Weeks of a probe in virtual time, on real servers behind networks as a file describes them (Goldberg et al. 1998).
//! They have no blocks, and so no record.

pub mod file;
pub mod network;
mod page;
mod subject;
mod virtual_round;

use anyhow::{Result, bail};
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_record::store::Record;
use tlsdyno_runner::kinds::files::Written;
use tlsdyno_runner::kinds::perform::{OutputArgs, refuse_unwritable, show};
use tlsdyno_runner::kinds::{AnyExperiment, AnySummary, Changes, Kind, any_experiment};

use self::file::ProbeExperiment;

pub struct ProbeWeeks;

impl Kind for ProbeWeeks {
    fn field(&self) -> &'static str {
        "probe"
    }

    fn read(&self, file: &Written) -> Result<Box<dyn AnyExperiment>> {
        Ok(Box::new(file.understood::<ProbeExperiment>()?))
    }

    fn summary(&self, _record: &Record) -> Result<Box<dyn AnySummary>> {
        bail!("weeks of a probe leave no record")
    }
}

impl AnyExperiment for ProbeExperiment {
    any_experiment!(ProbeWeeks);

    fn change(&mut self, changes: &Changes, name: &str) -> Result<()> {
        changes.refuse_workers(name)?;
        changes.refuse_libraries(name)?;
        for site in &mut self.probe.site {
            site.server.kind = changes.server.unwrap_or(site.server.kind);
            site.tls.certificate = changes.cert.or(site.tls.certificate);
        }
        changes.change(&mut self.measure);
        Ok(())
    }

    fn perform(&self, output: &OutputArgs) -> Result<Exit> {
        subject::check(self).or_fault(Fault::Input)?;
        if output.print_experiment {
            return tlsdyno_base::output::answer(self.to_toml()?);
        }
        output.results.report().map_or(Ok(()), refuse_unwritable)?;
        let stop = interrupt::flag(Exit::Interrupted as i32)?;
        let sites = subject::run(self, &stop)?;
        show(&page::document(self, &sites), &output.results, || Ok(serde_json::to_string_pretty(&sites)?))?;
        Ok(Exit::Done)
    }
}
