//! `tlsdyno profile --keys` and `--events`: handshakes step by step. Flags build the same experiment that TOML files
//! hold.

use tlsdyno_base::choice::choice;
use tlsdyno_record::model::{CertificateKind, Measure, Server, Tls};
use tlsdyno_tls::Effort;

use crate::steps::file::{Steps, StepsClient, StepsExperiment};

/// Flags of handshakes step by step; with one of them nothing else is profiled.
#[derive(clap::Args, Clone, Debug)]
pub struct StepArgs {
    /// Time each message of handshakes at both ends instead, with these keys of the server
    #[arg(long, value_name = "TYPES", value_delimiter = ',', value_parser = choice(CertificateKind::ALL))]
    #[arg(conflicts_with = "cert", help_heading = "Step by step")]
    keys: Vec<CertificateKind>,
    /// The same with so many certificates in the server's chain, for example 1,2,3
    #[arg(long, value_name = "LENGTHS", value_delimiter = ',', help_heading = "Step by step")]
    chain: Vec<u32>,
    /// The same, and keep the events of so many connections, full and resumed: a timeline of both ends
    #[arg(long, value_name = "N", help_heading = "Step by step")]
    events: Option<u32>,
    /// The client at the other end
    #[arg(long, value_name = "CLIENT", default_value_t = StepsClient::Own)]
    #[arg(value_parser = choice(StepsClient::ALL), help_heading = "Step by step")]
    client: StepsClient,
}

impl StepArgs {
    /// `None`: no such flag was given. `tls` has the certificate where no keys are given.
    pub fn experiment(&self, server: Server, tls: Tls, effort: Effort, measure: Measure) -> Option<StepsExperiment> {
        let StepArgs { keys, chain, events, client } = self;
        if keys.is_empty() && chain.is_empty() && events.is_none() && *client == StepsClient::Own {
            return None;
        }
        let steps = Steps {
            keys: if keys.is_empty() { vec![tls.certificate()] } else { keys.clone() },
            chains: if chain.is_empty() { vec![1] } else { chain.clone() },
            events: events.unwrap_or(0),
            effort,
            client: *client,
        };
        let question = match (events, keys.len()) {
            (Some(_), _) => "What happens when in a connection, at both ends?",
            (None, 0 | 1) => "What does each message of a handshake cost at both ends?",
            (None, _) => "What does each message of a handshake cost at both ends, by key?",
        };
        Some(StepsExperiment { question: question.to_owned(), steps, server, tls, measure, paper: None })
    }
}
