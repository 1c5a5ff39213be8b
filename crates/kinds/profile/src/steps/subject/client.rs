//! The other end of handshakes step by step: tlsdyno's own client, or one of the system's OpenSSL.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use tlsdyno_base::affinity::on_cpu;
use tlsdyno_base::exchange::{Answer, Moment, exchange};
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_base::interrupt;
use tlsdyno_native::stock_client::{StockClient, StockConnection};
use tlsdyno_record::store::FlowEvent;
use tlsdyno_tls::{Config, Session};

use super::CONNECTIONS_MAX;
use crate::profile::file::Handshakes;
use crate::steps::file::StepsCell;

pub(super) enum Client {
    /// tlsdyno's, with the session that the next connection may resume.
    Own { config: Arc<Config>, session: Option<Session>, cpu: usize },
    /// A client of its own, which keeps its sessions itself.
    Stock(StockClient),
}

/// Server and request of a client's connections.
pub(super) struct Target<'a> {
    pub(super) address: SocketAddr,
    pub(super) request: &'a [u8],
    pub(super) cell: &'a StepsCell,
}

pub(super) struct Seen {
    /// Times of events since the previous one.
    pub(super) events: Vec<FlowEvent>,
    /// Bytes of the handshake, sent and received.
    pub(super) sent_bytes: u64,
    pub(super) received_bytes: u64,
}

impl Client {
    pub(super) fn prepare(&mut self, target: &Target) -> Result<()> {
        match self {
            Client::Own { config, session, .. } => *session = answered(target, config, None)?.sessions.pop(),
            Client::Stock(client) => {
                let full = client.connections(false, (1, 1), Duration::ZERO);
                interrupt::check_this_process()?;
                full.map_err(|error| anyhow!("\"{}\": {error}", target.cell)).or_fault(Fault::Server)?;
            }
        }
        Ok(())
    }

    /// One connection after the other, for `time` and at least `least` of them.
    pub(super) fn connections(&mut self, target: &Target, least: u32, time: Duration) -> Result<Vec<Seen>> {
        let resumes = target.cell.handshakes == Handshakes::Resumed;
        match self {
            Client::Own { config, session, cpu } => on_cpu(*cpu, || {
                let until = Instant::now() + time;
                let mut all: Vec<Seen> = Vec::new();
                while all.len() < CONNECTIONS_MAX as usize && (all.len() < least as usize || Instant::now() < until) {
                    interrupt::check_this_process()?;
                    let answer = answered(target, config, session.clone().filter(|_| resumes))?;
                    is_right(target.cell, answer.is_resumed(), answer.status).or_fault(Fault::Server)?;
                    // Not every server hands out another session when it resumes one; the one before serves again.
                    *session = answer.sessions.last().cloned().or(session.take());
                    all.push(seen(&answer));
                }
                Ok(all)
            }),
            Client::Stock(client) => {
                let all = client.connections(resumes, (least, CONNECTIONS_MAX), time);
                // Ctrl-C ends that program too.
                interrupt::check_this_process()?;
                let all = all.map_err(|error| anyhow!("\"{}\": {error}", target.cell)).or_fault(Fault::Server)?;
                let each = all.into_iter().map(|connection| {
                    is_right(target.cell, connection.is_resumed, connection.status)?;
                    Ok(seen_by_stock(&connection))
                });
                each.collect::<Result<_>>().or_fault(Fault::Server)
            }
        }
    }
}

/// Refuses an unusable response, and a handshake of the other kind.
fn is_right(cell: &StepsCell, is_resumed: bool, status: u16) -> Result<()> {
    let resumes = cell.handshakes == Handshakes::Resumed;
    let what = if resumes { "did not take" } else { "took" };
    ensure!(is_resumed == resumes, "\"{cell}\": the server {what} the session");
    ensure!(status == 200, "\"{cell}\": status {status}");
    Ok(())
}

fn answered(target: &Target, config: &Arc<Config>, session: Option<Session>) -> Result<Answer> {
    let answer = exchange(target.address, Some(config), session, target.request);
    answer.map_err(|failure| anyhow!("\"{}\": {failure}", target.cell)).or_fault(Fault::Server)
}

fn events(moments: &[Moment]) -> Vec<FlowEvent> {
    let event = |(before, end): (&Moment, &Moment)| FlowEvent {
        name: end.what.to_string(),
        from_ns: before.at_ns as i64,
        to_ns: end.at_ns as i64,
        cpu_ns: end.cpu_ns.saturating_sub(before.cpu_ns),
        bytes: end.bytes,
    };
    moments.iter().zip(moments.iter().skip(1)).map(event).collect()
}

fn seen(answer: &Answer) -> Seen {
    let handshake = answer.handshake.as_ref();
    Seen {
        events: events(&answer.moments),
        sent_bytes: handshake.map_or(0, |of| u64::from(of.bytes_out)),
        received_bytes: handshake.map_or(0, |of| u64::from(of.bytes_in)),
    }
}

fn seen_by_stock(connection: &StockConnection) -> Seen {
    let StockConnection { sent_bytes, received_bytes, .. } = *connection;
    Seen { events: events(&connection.moments), sent_bytes, received_bytes }
}
