//! How costs of stages were found out: what each method says, side by side, and what it means where they differ.

use tlsdyno_base::units::{format_count, format_micros, format_percent};
use tlsdyno_record::model::{COUNTED_CODE, Experiment, Method};
use tlsdyno_record::store::{Record, Role};
use tlsdyno_report::rows::Rows;
use tlsdyno_runner::report::document::{Section, Tone};
use tlsdyno_runner::report::text::{capitalised, part_number, stage_label};
use tlsdyno_stats::PartOfWhole;
use tlsdyno_tls::Stage;

use crate::summary::Summary;
use crate::summary::counts::Instructions;
use crate::summary::methods::{Agreement, ByMethods};

/// `None` where there is one method, and instructions were not counted.
pub fn section(summary: &Summary) -> Option<Section> {
    let all = &summary.by_methods;
    if all.is_empty() {
        return None;
    }
    let is_timed = all.iter().any(|row| row.removing.is_some()) && all.iter().any(|row| row.doubling.is_some());
    let mut rows = Rows::new(all).words("cost of", |row| stage_label(&row.stage));
    if is_timed {
        rows = rows
            .estimate("removing µs/hit", format_micros, |row| row.removing)
            .estimate("doubling µs/hit", format_micros, |row| row.doubling)
            .words("agree?", |row| agreement(row).to_owned())
            .last_toned(1, Tone::Muted, |row| matches!(row.agreement, Some(Agreement::Undecided) | None))
            .last_toned(1, Tone::Strong, |row| row.agreement == Some(Agreement::Differ));
    }
    if summary.counted.is_some() {
        let share = |row: &ByMethods| Some(part_number(counted_part(row.counting?.percent)));
        rows = rows
            .number("removing instr./hit", |row| instructions(row, |counting| counting.removing_per_hit))
            .number("doubling instr./hit", |row| instructions(row, |counting| counting.doubling_per_hit))
            .number("share", |row| share(row).unwrap_or_default());
    }
    let meaning = "Server CPU time per hit by each method. Removing: what a hit costs less without the stage. \
                   Doubling: what it costs more with the stage computed twice. They agree within 10 % or 5 µs.";
    let meaning = is_timed.then(|| meaning.to_owned());
    let section = Section::titled("methods", "The methods side by side").rows(rows);
    Some(section.notes(meaning.into_iter().chain(differences(summary)).chain(counting_note(summary))))
}

/// A share that was counted has no interval.
fn counted_part(percent: f64) -> PartOfWhole {
    PartOfWhole::of(percent, [percent; 2])
}

fn instructions(row: &ByMethods, of: fn(&Instructions) -> Option<f64>) -> String {
    let count = row.counting.as_ref().and_then(of);
    count.map_or_else(
        || "–".to_owned(),
        |count| format!("{}{}", if count < 0.0 { "-" } else { "" }, format_count(count.abs() as u64)),
    )
}

/// Method of counting instructions, and its repeatability.
fn counting_note(summary: &Summary) -> Option<String> {
    let counted = summary.counted.as_ref()?;
    let (name, value) = COUNTED_CODE;
    let repeats = match (counted.shares_spread_percent, counted.spread_percent) {
        (Some(spread), _) => {
            format!(" Shares of rounds differ from their mean by at most {spread:.2} percentage points.")
        }
        (None, Some(spread)) => format!(" Rounds differ from their mean by at most {spread:.2} %."),
        (None, None) => String::new(),
    };
    Some(format!(
        "Instructions are those in user space, counted by valgrind's callgrind with one connection after the other; \
         what the kernel does is not in them. What OpenSSL does at every 32nd operation with an RSA key (new blinding \
         values) is spread over all of them.{repeats} Every server, timed or counted, ran with {name}={value}: \
         without AVX-512, VAES, SHA and ADX instructions, which valgrind does not know, so that a processor that has \
         them is faster at these stages than told here."
    ))
}

/// `None` where instructions were not counted.
pub fn counts(summary: &Summary) -> Option<Section> {
    let counted = summary.counted.as_ref()?;
    let as_is = summary.configurations.iter().position(|of| of.role == Role::AsIs);
    let as_is = as_is.and_then(|index| counted.per_hit(index));
    let counts = counted.configurations.iter().filter_map(|of| Some((of.name.clone(), of.instructions_per_hit?)));
    let counts: Vec<(String, f64)> = counts.collect();
    let rows = Rows::new(&counts)
        .words("configuration", |(name, _)| name.clone())
        .number("instructions/hit", |(_, count)| format_count(count.round() as u64))
        .number("of as is", |(_, count)| as_is.map_or(String::new(), |as_is| format_percent(100.0 * count / as_is)));
    Some(Section::titled("", "Instructions in user space").rows(rows))
}

/// Answer from instruction counts alone.
pub fn counted_answer(summary: &Summary) -> Option<String> {
    summary.counted.as_ref()?;
    let share = |row: &ByMethods| match counted_part(row.counting?.percent) {
        PartOfWhole::Number(percent) => Some((stage_label(&row.stage), percent)),
        _ => None,
    };
    let most = summary.by_methods.iter().filter_map(share).max_by(|a, b| a.1.total_cmp(&b.1));
    Some(match most {
        None => "Instructions per hit of each configuration are in the table below.".to_owned(),
        Some((stage, percent)) => format!(
            "{} takes most: {} of this server's instructions per hit in user space.",
            capitalised(&stage),
            format_percent(percent)
        ),
    })
}

fn agreement(row: &ByMethods) -> &'static str {
    match row.agreement {
        Some(Agreement::Agree) => "yes",
        Some(Agreement::Differ) => "no",
        Some(Agreement::Undecided) => "undecided",
        None => "–",
    }
}

/// A sentence for each stage where removing and doubling differ.
fn differences(summary: &Summary) -> Vec<String> {
    let differing = summary.by_methods.iter().filter(|row| row.agreement == Some(Agreement::Differ));
    differing.map(difference).collect()
}

/// Instruction counts tell whether the second computation does less, or does the same in less time.
fn difference(row: &ByMethods) -> String {
    let doubling_is_more = row.difference.is_some_and(|difference| difference.value > 0.0);
    let both = row.counting.and_then(|counting| counting.removing_per_hit.zip(counting.doubling_per_hit));
    let same_work =
        both.map(|(removing, doubling)| (removing - doubling).abs() <= 0.1 * removing.abs().max(doubling.abs()));
    let why = match (doubling_is_more, same_work) {
        (false, Some(true)) => {
            "both are as many instructions, so the second computation is faster: its code and tables are in the \
             caches. Removing tells what taking the stage away gives"
        }
        (true, Some(true)) => {
            "both are as many instructions, so something else gets slower without the stage, or slower beside two of \
             it. Doubling tells what the computation takes"
        }
        (false, Some(false)) => {
            "it is also another number of instructions: what stands around the stage goes with it. Removing tells what \
             taking it away gives, doubling what the computation takes"
        }
        (true, Some(false)) => {
            "it is also another number of instructions: its no-op costs something, or the stage is not removed whole. \
             Doubling tells what the computation takes"
        }
        (false, None) => {
            "the second computation finds its code and tables in the caches, or what stands around the stage goes with \
             it. Removing tells what taking the stage away gives"
        }
        (true, None) => {
            "without the stage others get dearer, or its no-op costs something. Doubling tells what the computation \
             takes"
        }
    };
    let (more, less) = if doubling_is_more { ("doubling", "removing") } else { ("removing", "doubling") };
    format!("{} costs more by {more} than by {less}: {why}.", capitalised(&stage_label(&row.stage)))
}

/// What doubling measures, and what it cannot; `None`: nothing was doubled.
pub fn doubling_note(record: &Record, summary: &Summary) -> Option<String> {
    let doubled = summary.configurations.iter().filter_map(|of| match of.role {
        Role::Doubled(stages) => Some(stages),
        _ => None,
    });
    let doubled: Vec<_> = doubled.collect();
    if doubled.is_empty() {
        return None;
    }
    let is_together = doubled.iter().any(|stages| stages.only().is_none());
    let together = "Cipher and MAC are one computation here, which only doubles as a whole (record protection).";
    let shim: Vec<String> = Stage::SHIM.map(Stage::label).to_vec();
    let secure = record.kind_part.of::<Experiment>().is_some_and(|experiment| experiment.methods == [Method::Doubling]);
    Some(
        [
            "Doubling measures CPU time, not latency: what a hit costs more when the stage is computed twice and one \
             result is kept.",
            if secure { "TLS was as secure as ever, and the client an ordinary one." } else { "" },
            if is_together { together } else { "" },
            &format!("Not doubled, as they are no computations: {}.", shim.join(", ")),
        ]
        .into_iter()
        .filter(|sentence| !sentence.is_empty())
        .collect::<Vec<_>>()
        .join(" "),
    )
}
