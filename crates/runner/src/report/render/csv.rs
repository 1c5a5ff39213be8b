//! The raw blocks as comma-separated values (RFC 4180), one line per block, for spreadsheets and data frames.

use tlsdyno_base::foreign::visible;
use tlsdyno_record::store::load_run::Summary;
use tlsdyno_record::store::{Block, Record, Role};

/// Column of a number or flag of a block.
type Field = (&'static str, fn(&Block) -> u64);

const FIELDS: &[Field] = &[
    ("position_in_round", |block| u64::from(block.position_in_round)),
    ("started_ns", |block| block.started_ns),
    ("elapsed_ns", |block| block.elapsed_ns),
    ("hits", |block| block.hits),
    ("body_bytes", |block| block.body_bytes),
    ("server_cpu_ns", |block| block.server_cpu_ns),
    ("client_cpu_ns", |block| block.client_cpu_ns),
    ("companion_cpu_ns", |block| block.companion_cpu_ns),
    ("connections", |block| block.connections),
    ("handshakes_full", |block| block.handshakes_full),
    ("resumed_intended", |block| block.resumed_intended),
    ("resumed_offered", |block| block.resumed_offered),
    ("resumed_accepted", |block| block.resumed_accepted),
    ("errors", |block| block.errors.values().sum()),
    ("steal_ns", |block| block.steal_ns),
    ("pace_ps", |block| block.pace_ps),
    ("client_bound", |block| u64::from(block.client_bound)),
    ("valid", |block| u64::from(block.valid)),
];

/// All blocks of a record; `client_bound` and `valid` are 0 or 1, `stage_off` is empty unless one stage is switched
/// off.
pub fn blocks(record: &Record) -> String {
    let mut names: Vec<String> = FIELDS.iter().map(|(name, _)| (*name).to_owned()).collect();
    let sliced = record.blocks.iter().any(|block| !block.slices.is_empty());
    names.extend(sliced.then(|| "slices_count".to_owned()));
    let counted = record.blocks.iter().any(|block| block.instructions.is_some());
    names.extend(counted.then(|| "instructions".to_owned()));
    let rising = record.blocks.iter().any(|block| !block.memory.is_empty());
    names.extend(rising.then(|| "pss_bytes_first,pss_bytes_last".to_owned()));
    names.extend(cluster_names(record));
    let backends = backends_most(record);
    let mut text = format!("record,round,configuration,stage_off,{}\r\n", names.join(","));
    for block in &record.blocks {
        let configuration = &record.configurations[block.configuration];
        let stage = if let Role::StageOff(stage) = configuration.role { stage.name() } else { "" };
        let mut numbers: Vec<String> = FIELDS.iter().map(|(_, field)| field(block).to_string()).collect();
        numbers.extend(sliced.then(|| block.slices.len().to_string()));
        let instructions = block.instructions.map_or_else(String::new, |count| count.to_string());
        numbers.extend(counted.then_some(instructions));
        let ends = [block.memory.first(), block.memory.last()].map(|point| point.map(|of| of.pss_bytes.to_string()));
        numbers.extend(ends.into_iter().filter(|_| rising).map(Option::unwrap_or_default));
        numbers.extend(cluster_numbers(block, backends));
        text.push_str(&format!(
            "{},{},{},{},{}\r\n",
            visible(&record.id),
            block.round,
            quoted(&configuration.name),
            quoted(stage),
            numbers.join(",")
        ));
    }
    text
}

/// Further columns of a cluster's record.
fn cluster_names(record: &Record) -> Vec<String> {
    let of_backend = |number| [format!("backend_{number}_cpu_ns"), format!("backend_{number}_connections")];
    let backends = 1..=backends_most(record);
    if backends.is_empty() {
        return Vec::new();
    }
    let common = ["dispatcher_cpu_ns", "unserved"].map(str::to_owned);
    common.into_iter().chain(backends.flat_map(of_backend)).collect()
}

/// Maximum number of machines in a block of a cluster or an array.
fn backends_most(record: &Record) -> usize {
    let counts = record.blocks.iter().filter_map(|block| Some(block.cluster.as_ref()?.backends.len()));
    counts.max().unwrap_or(0)
}

/// Values of the further columns; empty for machines that a block lacks.
fn cluster_numbers(block: &Block, most: usize) -> Vec<String> {
    let Some(parts) = &block.cluster else { return Vec::new() };
    let backends = parts.backends.iter().flat_map(|backend| [backend.cpu_ns, backend.connections]);
    let numbers = [parts.dispatcher_cpu_ns, parts.unserved].into_iter().chain(backends);
    let mut fields: Vec<String> = numbers.map(|number| number.to_string()).collect();
    fields.resize(2 + 2 * most, String::new());
    fields
}

/// One line for each slice of a load run.
pub fn slices(summary: &Summary) -> String {
    let mut text = "ends_ns,elapsed_ns,hits,errors,latency_ns_p50,latency_ns_p99,redirects\n".to_owned();
    let mut ends_ns = 0;
    for slice in &summary.outcome.slices {
        ends_ns += slice.elapsed_ns;
        let times = [ends_ns, slice.elapsed_ns, slice.hits, slice.errors];
        let numbers = times.into_iter().chain([slice.latency_ns_p50, slice.latency_ns_p99, slice.redirects]);
        text += &(numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",") + "\n");
    }
    text
}

/// A field; control characters are escaped, as a terminal would obey them.
fn quoted(text: &str) -> String {
    let text = visible(text).into_owned();
    if text.contains(['"', ',', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::quoted;

    #[test]
    fn texts_are_quoted_where_needed() {
        assert_eq!(quoted("as is"), "as is");
        assert_eq!(quoted("a, \"b\""), "\"a, \"\"b\"\"\"");
    }
}
