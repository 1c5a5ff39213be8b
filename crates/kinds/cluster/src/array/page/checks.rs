//! What the numbers of an array must agree with: each other, the quotas, and the paper's own arithmetic.

use tlsdyno_base::units::{format_percent, format_quantity, format_tenths};
use tlsdyno_record::model::{PublishedNumber, Quantity};
use tlsdyno_runner::report::document::{Content, Item, Section};
use tlsdyno_runner::report::text::mark;
use tlsdyno_stats::statement::Lies;
use tlsdyno_stats::{Estimate, papers};

use super::keys::{Offering, offering};
use crate::array::file::{PLAIN_HTTP, Spread};
use crate::array::summary::{ArrayLine, ArraySummary, Bound};

/// Plain HTTP may be slower than the pages take by this part.
const PAGES_AGREE: f64 = 0.05;
/// A full handshake may be more or fewer pages long than it was to be, by this part: the paper's points leave 30 to 40.
const SCALE_AGREES: f64 = 0.15;
/// Several proxies may serve more or less than one by their number, by this part.
const LINEAR_TO: f64 = 0.1;
/// A quota may be exceeded by this part: the kernel's turns end at ticks.
const QUOTA_AGREES: f64 = 1.05;

/// Behind the dispatcher as many sessions are to be accepted as with shared keys, to so many percentage points.
const ACCEPTED_AGREES: f64 = 2.0;

pub fn section(summary: &ArraySummary) -> Section {
    let mut items: Vec<Item> = [pages(summary), scale(summary), quotas(summary)].into_iter().flatten().collect();
    items.extend(summary.lines.iter().filter_map(both_ways));
    items.extend(linear(summary));
    items.extend(same_as_shared(summary));
    items.extend(arithmetic(summary));
    Section::titled("checks", "Checks").with(Content::Items(items))
}

/// A check that passed, or did not; one that an interval leaves open is neither.
fn item(lies: Lies, head: String) -> Item {
    Item { head: format!("{} {head}", mark(lies)), muted: lies == Lies::Within, ..Item::default() }
}

/// The transaction server's own page times give the plain throughput.
fn pages(summary: &ArraySummary) -> Option<Item> {
    let Estimate { value: plain, low, high } = summary.plain.as_ref()?.hits_per_second;
    let own = summary.pages_per_second();
    let limited = match summary.plain_bound_by {
        Some(Bound::Machines) => ", but the server's CPU time was used up",
        Some(Bound::Client) => ", but the load's CPU was full",
        _ => "",
    };
    let lies =
        if limited.is_empty() { Lies::new([low / own, high / own], about(1.0, PAGES_AGREE)) } else { Lies::Across };
    let said = format!(
        "plain HTTP made {} pages/s; the time that a page takes makes {}{limited}",
        format_quantity(plain),
        format_quantity(own)
    );
    Some(item(lies, said))
}

/// Pages were scaled by handshakes that were made before; the model tells how long those were that counted.
fn scale(summary: &ArraySummary) -> Option<Item> {
    let wanted = Some(summary.experiment.array.handshake_pages_ratio).filter(|wanted| *wanted > 0.0)?;
    let model = summary.models.iter().find(|model| !model.is_of_server).or(summary.models.first())?;
    let in_pages = |ns: f64| ns / 1e9 * summary.pages_per_second();
    let Estimate { value, low, high } = model.costs.full_handshake_ns;
    let found = in_pages(value);
    let said = format!(
        "a full handshake was to be {} pages long; by the model of {} it was {}",
        format_quantity(wanted),
        if model.is_of_server { "the server" } else { "proxies" },
        format_quantity(found)
    );
    Some(item(Lies::new([in_pages(low), in_pages(high)], about(wanted, SCALE_AGREES)), said))
}

/// Full handshakes times what each costs, and with them all CPU time, stay within the quotas.
fn quotas(summary: &ArraySummary) -> Option<Item> {
    let all = summary.lines.iter().flat_map(|line| line.levels.iter().map(move |level| (line, level)));
    let (line, fullest) = all.max_by(|a, b| a.1.fullest_percent.total_cmp(&b.1.fullest_percent))?;
    // It is what was counted, not an estimate.
    let counted = fullest.fullest_percent;
    let lies = Lies::new([counted, counted], [0.0, 100.0 * QUOTA_AGREES]);
    let said = format!(
        "no machine used more than its quota: the fullest, {} at {} %, used {} of it",
        line.name,
        fullest.asked_percent,
        format_percent(fullest.fullest_percent)
    );
    Some(item(lies, said))
}

/// The half serving point by interpolation and by the model lie in each other's interval.
fn both_ways(line: &ArrayLine) -> Option<Item> {
    let half = line.half_serving_point.as_ref()?;
    let (by_time, by_model) = (half.percent_by_time?, half.percent_by_costs?);
    let lies = both(by_time, by_model);
    let said = format!(
        "{}: half serving point {} by interpolation, {} by the model{}",
        line.name,
        format_percent(by_time.value),
        format_percent(by_model.value),
        match lies {
            Lies::Within => ", each in the other's interval",
            Lies::Across => ", whether they agree is undecided",
            Lies::Above | Lies::Below => ", and their intervals do not meet",
        }
    );
    Some(item(lies, said))
}

/// So many proxies serve so many times what one serves, at the least reuse, where nothing but they limits: the model
/// has no term for what they do to each other.
fn linear(summary: &ArraySummary) -> Vec<Item> {
    let served = |line: &ArrayLine| {
        let level = line.levels.first().filter(|level| level.bound_by == Bound::Machines)?;
        Some((level.asked_percent, level.hits_per_second))
    };
    let all = summary.lines.iter().filter(|line| line.proxies > 0);
    let of_line = |line: &ArrayLine| {
        let is_one = |other: &&ArrayLine| other.proxies == 1 && other.spread == line.spread;
        let ((percent, served_all), (_, one)) = served(line).zip(summary.lines.iter().find(is_one).and_then(served))?;
        let times = served_all.divided_by(one);
        let said = format!(
            "{}: at {percent} % reuse {} times what one serves [{}, {}]",
            line.name,
            format_tenths(times.value),
            format_tenths(times.low),
            format_tenths(times.high)
        );
        Some(item(Lies::new(times.interval(), about(f64::from(line.proxies), LINEAR_TO)), said))
    };
    all.filter(|line| line.proxies > 1).filter_map(of_line).collect()
}

/// How two estimates of one number lie: each in the other's interval, or apart, or neither.
fn both(one: Estimate, other: Estimate) -> Lies {
    let within = |value: f64, of: Estimate| Lies::new([value, value], of.interval()) == Lies::Within;
    let is_known = |of: Estimate| of.low.is_finite() && of.high.is_finite();
    match Lies::new(one.interval(), other.interval()) {
        apart @ (Lies::Above | Lies::Below) => apart,
        _ if is_known(one) && is_known(other) && within(one.value, other) && within(other.value, one) => Lies::Within,
        _ => Lies::Across,
    }
}

fn about(number: f64, part: f64) -> [f64; 2] {
    [number * (1.0 - part), number * (1.0 + part)]
}

/// Behind the dispatcher as many sessions have to be accepted as with shared ticket keys.
fn same_as_shared(summary: &ArraySummary) -> Vec<Item> {
    let all = offering(summary);
    let shared = all.iter().filter(|(line, ..)| line.spread == Spread::SharedKeys);
    let of_shared = |(line, level, shared): &Offering| {
        let is_behind = |of: &&Offering| {
            let is_there = of.0.proxies == line.proxies && of.1.asked_percent == level.asked_percent;
            of.0.spread == Spread::Dispatcher && is_there
        };
        let (_, _, behind) = all.iter().find(is_behind)?;
        let said = format!(
            "{} proxies at {} %: own keys behind the dispatcher accept {}, shared keys {}, at most {} points apart",
            line.proxies,
            level.asked_percent,
            format_percent(behind.value),
            format_percent(shared.value),
            ACCEPTED_AGREES
        );
        let apart = [behind.low - shared.high, behind.high - shared.low];
        Some(item(Lies::new(apart, [-ACCEPTED_AGREES, ACCEPTED_AGREES]), said))
    };
    shared.filter_map(of_shared).collect()
}

struct PublishedHalf {
    proxies: f64,
    percent: f64,
    full_per_second: f64,
}

/// What the paper's own half serving points imply.
fn arithmetic(summary: &ArraySummary) -> Vec<Item> {
    let Some(paper) = &summary.experiment.paper else { return Vec::new() };
    let Some(plain) = paper.first(Quantity::HitsPerS, PLAIN_HTTP).map(|plain| plain.mean()) else { return Vec::new() };
    let half = |(name, _, percent): (&str, &str, PublishedNumber)| {
        let line = summary.lines.iter().find(|line| line.name == name)?;
        let percent = percent.mean();
        let full_per_second = papers::handshakes_at_half(plain, percent / 100.0);
        Some(PublishedHalf { proxies: f64::from(line.proxies.max(1)), percent, full_per_second })
    };
    let halves: Vec<PublishedHalf> = paper.all(Quantity::HalfServingPercent).filter_map(half).collect();
    let first = halves.iter().find(|half| half.proxies == 1.0);
    let said = |head: String| Item { head, muted: true, ..Item::default() };
    let mut items: Vec<Item> = halves.iter().map(|half| said(implied(plain, half, first))).collect();
    items.extend(first.map(|first| {
        let pages = plain / first.full_per_second;
        let head = format!(
            "published: one proxy's {} pages/s by what it does of full handshakes at half: a handshake is {} pages \
             long at most",
            format_quantity(plain),
            format_quantity(pages)
        );
        Item { text: vec![LINES_CURVE.to_owned()], ..said(head) }
    }));
    items
}

const LINES_CURVE: &str = "Straight lines between the published levels curve the other way than throughput does, and \
                           give half serving points that are too low by 1 to 4 points where levels are far apart: \
                           \"by lines\" above is what compares with the published ones.";

/// How many full handshakes a second a published half serving point makes, and whether proxies add up to more than the
/// first one alone.
fn implied(plain: f64, half: &PublishedHalf, first: Option<&PublishedHalf>) -> String {
    let linear = first.map(|first| {
        let linear = 100.0 * (1.0 - first.full_per_second * half.proxies / (plain / 2.0));
        let is_better = half.percent < linear - 0.5;
        let better = if is_better { ", so that the published one is better than linear" } else { "" };
        format!("; growing with proxies as from the first it would be at {} %{better}", format_tenths(linear))
    });
    format!(
        "published, {} proxies: {}/2 × (1 − {} %) = {:.1} full handshakes/s, {:.1} for each proxy{}",
        half.proxies,
        format_quantity(plain),
        half.percent,
        half.full_per_second,
        half.full_per_second / half.proxies,
        linear.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(value: f64, half: f64) -> Estimate {
        Estimate { value, low: value - half, high: value + half }
    }

    #[test]
    fn without_finite_intervals_no_check_passes_or_fails() {
        let infinite = Estimate { low: f64::NEG_INFINITY, high: f64::INFINITY, ..of(50.0, 0.0) };
        for other in [infinite, of(50.0, 1.0), of(110.0, 1.0)] {
            assert_eq!((both(infinite, other), both(other, infinite)), (Lies::Across, Lies::Across));
        }
        assert_eq!(both(of(50.0, 2.0), of(51.0, 2.0)), Lies::Within);
        assert_eq!(both(of(50.0, 2.0), of(53.0, 2.0)), Lies::Across);
        assert_eq!(both(of(50.0, 2.0), of(60.0, 2.0)), Lies::Below);
        assert!(item(both(infinite, infinite), "half".to_owned()).head.starts_with("? half"));
        assert!(item(Lies::Within, String::new()).head.starts_with('✓'));
        assert!(item(Lies::Above, String::new()).head.starts_with('✗'));
    }
}
