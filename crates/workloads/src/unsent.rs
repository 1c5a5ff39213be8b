//! Requests of a log or recording that are not made again, because their methods may change something.

use std::collections::BTreeMap;

use tlsdyno_record::model::workload::{NamesSpec, SentMethod};

use super::logged::Method;

/// How many were left out, by their methods; `other`: of methods that are never made.
pub type Unsent = BTreeMap<&'static str, u64>;

/// Whether a request of this method is made again: any of files that are made for it, of a server's own objects those
/// that change nothing, and `sent`. Others are counted.
pub(super) fn is_sent(method: &str, names: NamesSpec, sent: &[SentMethod], unsent: &mut Unsent) -> bool {
    let known = Method::from_name(method);
    let is_sent = match known {
        _ if names == NamesSpec::Files => true,
        Some(Method::Other(other)) => sent.contains(&other),
        known => known.is_some(),
    };
    if !is_sent {
        *unsent.entry(known.map_or("other", Method::name)).or_default() += 1;
    }
    is_sent
}

/// What was left out, in a sentence.
pub(super) fn note(unsent: &Unsent) -> Option<String> {
    let all: u64 = unsent.values().sum();
    let each: Vec<String> = unsent.iter().map(|(method, count)| format!("{count} {method}")).collect();
    (all > 0).then(|| {
        format!(
            "left out, as only GET and HEAD are asked of an application: {}. They may change something; --send-methods \
             names those that are to be sent all the same, without a body",
            each.join(", ")
        )
    })
}
