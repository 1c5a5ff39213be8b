//! The plan as a document: one sentence, the table of machines, curves, and where each number comes from.

use serde_json::{Value, json};
use tlsdyno_base::bootstrap::Estimate;
use tlsdyno_base::units::{format_micros, format_of, format_quantity, format_short, format_tenths};
use tlsdyno_report::charts::{COLOURS, line_legend, quantity, tooltip, with};
use tlsdyno_report::document::{Chart, Content, Document, Section, Tone};
use tlsdyno_report::rows::Rows;

use crate::costs::{Costs, Fitted};
use crate::measured::{Place, Term};
use crate::model::{Latency, Machines, Prediction, Site, is_carried};

/// Levels of reuse in the chart, per cent from one to the next.
const REUSE_STEP: usize = 5;
/// Loads in the chart, per cent of what the machines can do.
const LOADS_PERCENT: [u32; 13] = [10, 20, 30, 40, 50, 60, 70, 75, 80, 85, 90, 93, 95];

pub(crate) struct Plan<'a> {
    pub site: &'a Site,
    pub costs: &'a Costs,
    pub predictions: &'a [Prediction],
    /// Machines of which costs are missing, and what measures them.
    pub missing: &'a [String],
    pub warnings: Vec<String>,
    /// What else was asked: traffic of a log, what-ifs, storms.
    pub more: Vec<Section>,
    /// Sentences of these sections that belong to the answer.
    pub said: Vec<String>,
    /// Further fields of the JSON object.
    pub json: Vec<(&'static str, Value)>,
}

pub(crate) struct Alternative {
    pub name: String,
    /// The cells were measured with it.
    pub is_there: bool,
    /// What becomes of it, or why that cannot be told.
    pub outcome: Result<Vec<Prediction>, String>,
}

impl<'a> Plan<'a> {
    pub fn of(site: &'a Site, costs: &'a Costs, predictions: &'a [Prediction]) -> Plan<'a> {
        let warnings = site.extrapolates(costs, predictions);
        let (more, said, json) = (Vec::new(), Vec::new(), Vec::new());
        Plan { site, costs, predictions, missing: &[], warnings, more, said, json }
    }

    /// The machines of the answer; where none carry the site, the last that were asked for.
    pub fn answered(&self) -> Option<&'a Prediction> {
        smallest(self.predictions).or(self.predictions.last())
    }

    /// What changes would make of it: on the machines of the answer, and how few machines would do then.
    pub fn add_what_ifs(&mut self, all: &[Alternative]) {
        let Some(base) = self.answered().cloned() else { return };
        let at_base = |of: &Alternative| -> Option<Prediction> {
            of.outcome.as_ref().ok()?.iter().find(|of| of.machines == base.machines).cloned()
        };
        let fewest = |of: &Alternative| match &of.outcome {
            Ok(predictions) => smallest(predictions).map_or("more than these".to_owned(), |of| of.machines.told()),
            Err(why) => why.clone(),
        };
        let price = |of: &Alternative| per_month(smallest(of.outcome.as_ref().ok()?)?);
        let name = |of: &Alternative| {
            let there = if of.is_there { ": there already, gains 0" } else { "" };
            format!("{}{there}", of.name)
        };
        let rows = Rows::new(all)
            .words("what if", name)
            .estimate("% used", |of| format!("{of:.0}"), |of| Some(at_base(of)?.used.scaled(100.0)))
            .estimate("CPU µs/hit", format_micros, |of| Some(at_base(of)?.cpu_ns_per_hit))
            .words("carried by", fewest)
            .number_if_any("price/month", price)
            .toned(Tone::Muted, |of| of.outcome.is_err());
        let title = format!("What if, on {}", base.machines.told());
        self.more.push(Section::titled("what-if", title).rows(rows));
        let fewer = all.iter().filter_map(|of| Some((of, smallest(of.outcome.as_ref().ok()?)?.machines)));
        let fewer = fewer.filter(|(_, machines)| machines.count() < base.machines.count() || !carries(&base));
        let said = fewer.map(|(of, machines)| format!("With {} {} do.", of.name, machines.told()));
        self.said.extend(said);
        let told = |of: &Alternative| match &of.outcome {
            Ok(predictions) => json!({"name": of.name, "is_there": of.is_there, "machines": predictions}),
            Err(why) => json!({"name": of.name, "missing": why}),
        };
        self.json.push(("what_if", all.iter().map(told).collect()));
    }
}

/// Whether the machines carry the site: all of the interval lies below full.
pub(crate) fn carries(of: &Prediction) -> bool {
    is_carried(of.used)
}

/// The fewest machines that carry the site; among as many the least used.
pub(crate) fn smallest(predictions: &[Prediction]) -> Option<&Prediction> {
    let order = |one: &&Prediction, two: &&Prediction| {
        let by_count = one.machines.count().cmp(&two.machines.count());
        by_count.then(one.used.value.total_cmp(&two.used.value))
    };
    predictions.iter().filter(|of| carries(of)).min_by(order)
}

/// The price of a month, of a year's twelve.
fn per_month(of: &Prediction) -> Option<String> {
    of.price_per_h.map(|price| format_short(price * 730.0))
}

fn percent(of: Estimate) -> String {
    of.scaled(100.0).with_interval(|value| format!("{value:.0}")).replacen(' ', " % ", 1)
}

fn spare(of: &Prediction) -> Estimate {
    Estimate { value: 1.0 - of.used.value, low: 1.0 - of.used.high, high: 1.0 - of.used.low }
}

pub(crate) fn answer(plan: &Plan<'_>) -> String {
    let rate = format_quantity(plan.site.rate_per_s);
    let machines = |of: &Prediction| of.machines.told();
    let mut said = match smallest(plan.predictions) {
        Some(best) => {
            let fewer = plan.predictions.iter().filter(|of| of.machines.count() < best.machines.count());
            let undecided = |of: &&Prediction| of.used.low < 1.0;
            let (open, not): (Vec<_>, Vec<_>) = fewer.partition(undecided);
            let list = |of: &[&Prediction], verb: &str| {
                let names: Vec<String> = of.iter().map(|of| machines(of)).collect();
                if names.is_empty() { String::new() } else { format!("; {verb}: {}", names.join(" · ")) }
            };
            format!(
                "{} of {} CPU {} {rate} hits/s with {} of the CPU time to spare{}{}.",
                machines(best),
                format_short(plan.site.cpus),
                if best.machines.count() == 1 { "carries" } else { "carry" },
                percent(spare(best)),
                list(&not, "too few"),
                list(&open, "not decided by these records")
            )
        }
        None => {
            let most = plan
                .predictions
                .iter()
                .max_by(|one, two| one.capacity_per_s.value.total_cmp(&two.capacity_per_s.value));
            let most = most.map_or(String::new(), |most| {
                format!(" The most of them, {}, can do {}.", machines(most), rate_told(most.capacity_per_s))
            });
            format!("None of these surely carries {rate} hits/s.{most}")
        }
    };
    plan.said.iter().for_each(|more| said.push_str(&format!(" {more}")));
    said
}

fn rate_told(of: Estimate) -> String {
    of.in_unit(" hits/s", format_quantity)
}

pub(crate) fn document(plan: &Plan<'_>) -> Document {
    let mut sections = vec![machines(plan), waiting(plan)];
    sections.extend(plan.more.iter().cloned());
    sections.push(Section::titled("curves", "").charts(charts(plan)));
    sections.push(half_points(plan));
    sections.push(costs(plan.costs));
    let mut warnings = plan.costs.doubts.clone();
    if !plan.costs.knows_runs() {
        warnings.push(
            "what a machine differs by from one hour to the next is not known, and in no interval: give four records \
             or more of one server from different hours, or --between-runs"
                .to_owned(),
        );
    }
    warnings.extend(plan.missing.iter().map(|what| format!("no record tells the cost of a {what}")));
    warnings.extend(plan.warnings.iter().cloned());
    sections.push(Section::default().with(Content::Warnings(warnings)));
    let title = "How many machines carry this site?".to_owned();
    Document { title, answer: answer(plan), sections, ..Document::default() }
}

fn machines(plan: &Plan<'_>) -> Section {
    let rows = Rows::new(plan.predictions)
        .words("machines", |of| of.machines.told())
        .estimate("% used", |of| format!("{of:.0}"), |of| Some(of.used.scaled(100.0)))
        .estimate("hits/s at most", format_quantity, |of| Some(of.capacity_per_s))
        .estimate("CPU µs/hit", format_micros, |of| Some(of.cpu_ns_per_hit))
        .number("kept", |of| format!("{:.0} %", 100.0 * of.kept_fraction))
        .number_if_any("dispatcher CPUs", |of| of.dispatcher_cpus.map(|of| format!("{:.2}", of.value)))
        .number_if_any("price/h", |of| of.price_per_h.map(|price| format!("{price:.3}")))
        .number_if_any("price/month", per_month)
        .toned(Tone::Muted, |of| !carries(of));
    let site = plan.site;
    let size = match site.kilobytes {
        Some(size) => format!(" of {} kB", format_short(size)),
        None => " of the smallest page that was measured".to_owned(),
    };
    let traffic = format!(
        "{} hits/s{size}, {} on each connection, {} % of the connections offer a session.",
        format_quantity(site.rate_per_s),
        format_of(site.requests_per_connection, "request"),
        format_short(100.0 * site.reuse_fraction)
    );
    let note = match plan.costs.knows_runs() {
        true => "95 % intervals: rounds, what the fit misses, and what runs differ by are drawn again.",
        false => "95 % intervals: rounds of the records, and what the fit misses, are drawn again.",
    };
    Section::titled("machines", "Machines").text(traffic).rows(rows).notes([note.to_owned()])
}

/// Latencies on those numbers of machines that keep up.
fn waiting(plan: &Plan<'_>) -> Section {
    let ms = |of: f64| format_tenths(of * 1e3);
    let latency = |of: &Prediction, of_returning: usize, part: fn(&Latency) -> Estimate| {
        Some(part(&of.visitors[of_returning])).filter(|of| of.value.is_finite())
    };
    let all = plan.predictions.iter().filter(|of| latency(of, 0, |of| of.mean_s).is_some());
    let rows = Rows::new(all)
        .words("machines", |of| of.machines.told())
        .estimate("new visitor ms", ms, |of| latency(of, 0, |of| of.mean_s))
        .estimate("p99", ms, |of| latency(of, 0, |of| of.p99_s))
        .estimate("returning ms", ms, |of| latency(of, 1, |of| of.mean_s))
        .estimate("p99", ms, |of| latency(of, 1, |of| of.p99_s))
        .toned(Tone::Muted, |of| !carries(of));
    let note = "Milliseconds are those of the machines, by M/G/c for a server that does what comes first to its end; \
                round trips come on top.";
    Section::titled("waiting", "Until the first response").rows(rows).notes([note.to_owned()])
}

fn costs(costs: &Costs) -> Section {
    let all: Vec<(Place, &Fitted, Term, Estimate)> = costs
        .places()
        .flat_map(|(place, of)| Term::ALL.map(|term| Some((place, of, term, of.costs_ns[term as usize]?))))
        .flatten()
        .collect();
    let with = |(place, of, term, _): &(Place, &Fitted, Term, Estimate)| {
        let included = of.requests_included().filter(|_| *term != Term::Kilobyte);
        let included = included.map_or(String::new(), |count| format!(" and {}", format_of(count, "request")));
        format!("{}{included}", term.told(*place))
    };
    let rows = Rows::new(&all)
        .words("at", |of| of.0.told().to_owned())
        .words("of a", with)
        .estimate("CPU µs", format_micros, |of| Some(of.3))
        .number("fit misses", |of| of.1.misfit_ratio.map_or("–".to_owned(), |part| format!("{:.1} %", 100.0 * part)))
        .number("cells", |of| of.1.cells.to_string())
        .words("from", |of| of.1.from.join(", "));
    Section::titled("costs", "Measured costs").rows(rows).notes(paces(costs))
}

/// By how much the records differ in pace, where there are several.
fn paces(costs: &Costs) -> Option<String> {
    let all = costs.places().map(|(place, _)| costs.paces(place)).max_by_key(|all| all.iter().flatten().count())?;
    let told = |(name, pace): (&String, &Option<f64>)| Some(format!("{name} {:+.1} %", 100.0 * (*pace)?));
    let told: Vec<String> = costs.names.iter().zip(&all).filter_map(told).collect();
    let is_said = told.len() > 1;
    is_said.then(|| format!("CPU time of the same work beside that of all records: {}.", told.join(", ")))
}

/// Mraz's half serving points, where plain HTTP was measured beside TLS.
fn half_points(plan: &Plan<'_>) -> Section {
    let costs = plan.costs;
    let [server, plain] = [Place::Server, Place::Plain].map(|place| costs.at(place));
    let (Some(server), Some(_)) = (server, plain) else { return Section::default() };
    if server.costs_ns[Term::Full as usize].is_none() {
        return Section::default();
    }
    let plain_ns = |of: &crate::costs::Drawn<'_>| of.cpu_ns(Place::Plain, [1.0, 0.0, 1.0, server.range.kilobytes[0]]);
    let full_ns = |of: &crate::costs::Drawn<'_>| of.cpu_ns(Place::Server, [1.0, 0.0, 1.0, server.range.kilobytes[0]]);
    let half = costs.estimate(|of| {
        let handshakes = (full_ns(of) - plain_ns(of)) / plain_ns(of);
        100.0 * tlsdyno_stats::papers::mraz_half(handshakes)
    });
    let told = format!(
        "Half serving point of one server (Mraz et al. 2002): at {} of reuse it does half of what plain HTTP does.",
        half.in_unit(" %", format_tenths)
    );
    Section::titled("half", "").text(told)
}

fn charts(plan: &Plan<'_>) -> Vec<Chart> {
    [by_reuse(plan), by_load(plan)].into_iter().flatten().collect()
}

fn by_reuse(plan: &Plan<'_>) -> Option<Chart> {
    let mut ways: Vec<Machines> = Vec::new();
    for of in plan.predictions.iter().map(|of| of.machines) {
        if !ways.iter().any(|way| (way.proxies == 0) == (of.proxies == 0)) {
            ways.push(of);
        }
    }
    let mut data: Vec<Value> = Vec::new();
    for percent in (0..=100).step_by(REUSE_STEP) {
        for way in &ways {
            let site = Site { reuse_fraction: percent as f64 / 100.0, ..plan.site.clone() };
            if !plan.costs.missing(&site.needs(*way, plan.costs)).is_empty() {
                continue;
            }
            let of = site.cpus_used(plan.costs, *way).scaled(1.0 / site.cpus);
            let name = if way.proxies == 0 { "servers end TLS" } else { "proxies end TLS" };
            data.push(json!({"reuse": percent, "machines": of.value, "low": of.low, "high": of.high, "way": name}));
        }
    }
    let colour = with(json!({"field": "way", "type": "nominal"}), line_legend(None, 2));
    let range = json!({"range": &COLOURS[..2]});
    let colour = with(colour, json!({"scale": range}));
    let x = quantity("reuse", "connections that offer a session, %");
    let tip = tooltip([("reuse", "%"), ("machines", "machines"), ("low", "from"), ("high", "to")]);
    let body = json!({"encoding": {"x": x, "color": colour}, "layer": [
        {"mark": {"type": "area", "opacity": 0.2}, "encoding": {"y": quantity("low", ""), "y2": {"field": "high"}}},
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": quantity("machines", "machines, full"),
         "tooltip": tip}}]});
    let chart = Chart::new("machines-by-reuse", 220, data, body)?;
    let caption = "Machines' worth of CPU time by reuse";
    Some(
        chart
            .described(caption, "A line of how many full machines the site takes at each share of returning visitors."),
    )
}

fn by_load(plan: &Plan<'_>) -> Option<Chart> {
    let of = smallest(plan.predictions).or(plan.predictions.last())?;
    let mut data: Vec<Value> = Vec::new();
    for percent in LOADS_PERCENT {
        let rate_per_s = of.capacity_per_s.value * f64::from(percent) / 100.0;
        let site = Site { rate_per_s, ..plan.site.clone() };
        let at = site.predict(plan.costs, of.machines, None);
        for (visitor, latency) in ["new visitor", "returning visitor"].iter().zip(at.visitors) {
            let ms = latency.p99_s.scaled(1e3);
            // Band and line end where the interval has no end.
            let row = json!({"load": rate_per_s, "p99": ms.value, "low": ms.low, "high": ms.high, "visitor": visitor});
            data.extend(ms.high.is_finite().then_some(row));
        }
    }
    let colour = with(json!({"field": "visitor", "type": "nominal"}), line_legend(None, 2));
    let colour = with(colour, json!({"scale": {"range": &COLOURS[..2]}}));
    let tip = tooltip([("load", "hits/s"), ("p99", "ms"), ("low", "from"), ("high", "to")]);
    let body = json!({"encoding": {"x": quantity("load", "hits/s"), "color": colour}, "layer": [
        {"mark": {"type": "area", "opacity": 0.2}, "encoding": {"y": quantity("low", ""), "y2": {"field": "high"}}},
        {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": quantity("p99", "p99 of the first response, ms"),
         "tooltip": tip}}]});
    let chart = Chart::new("p99-by-load", 220, data, body)?;
    let alternative = "A line for new and one for returning visitors, rising where the machines get full.";
    Some(chart.described(format!("99th percentile by load, {}", of.machines.told()), alternative))
}

pub(crate) fn json(plan: &Plan<'_>) -> Value {
    let costs: Vec<Value> = plan.costs.places().map(|(place, of)| with(json!({"place": place}), json!(of))).collect();
    let warnings = [plan.costs.doubts.clone(), plan.warnings.clone()].concat();
    let mut told = json!({
        "answer": answer(plan),
        "site": plan.site,
        "machines": plan.predictions,
        "costs": costs,
        "records": plan.costs.names,
        "missing": plan.missing,
        "warnings": warnings,
    });
    plan.json.iter().for_each(|(name, value)| told[*name] = value.clone());
    told
}
