//! A curve of throughput over percent reuse, as data: what `tlsdyno reuse` and the table `[curve]` of a file say.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};
use tlsdyno_base::choice::{choice, defaults_of};
use tlsdyno_record::model::workload::ClientField;
use tlsdyno_stats::reuse::ReuseAxis;

/// Levels where none are given. By hits those of Mraz et al. 2002, Figure 8: 1, 2, 4, 10, 25 and 50 requests for each
/// full handshake.
const LEVELS_BY_HITS: [f64; 6] = [0.0, 50.0, 75.0, 90.0, 96.0, 98.0];
const LEVELS_BY_CONNECTIONS: [f64; 8] = [0.0, 10.0, 33.0, 50.0, 80.0, 96.0, 98.0, 100.0];

/// Maximum distance of a level by hits from the nearest possible level, percentage points.
const LEVEL_TOLERANCE: f64 = 0.5;

/// Throughput at saturation over percent reuse.
#[derive(clap::Args, Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Curve {
    /// Of what percent reuse is a part; of both there are two curves
    #[arg(long, value_name = "AXIS", value_delimiter = ',', default_value = "connections")]
    #[arg(value_parser = choice(ReuseAxis::ALL.iter().copied()))]
    pub by: Vec<ReuseAxis>,
    /// Percentages, ascending [default: by hits 0,50,75,90,96,98, by connections 0,10,33,50,80,96,98,100]
    #[arg(long = "levels", id = "levels", value_name = "PERCENT", value_delimiter = ',')]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub levels_percent: Vec<f64>,
    /// The same objects in plain HTTP, by HTTP/1.1: gives the half serving point
    #[arg(long, value_name = "URL")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plain: Option<String>,
    /// Most connections to saturate the server with
    #[arg(long = "connections-max", id = "connections_max", default_value_t = 1024, value_name = "N")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_535))]
    pub connections_max_count: u32,
    /// An access log that is laid over the curve by hits.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// What is left out of the log, as `tlsdyno trace show --exclude` has it.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Which field of the log's lines is the client, as `tlsdyno trace show --client-field` has it.
    #[arg(skip)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_field: Option<ClientField>,
}

impl Default for Curve {
    fn default() -> Curve {
        defaults_of()
    }
}

/// Measurement of one configuration of a curve.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CurvePlace {
    pub by: ReuseAxis,
    /// Requested percent reuse; `None`: plain HTTP.
    pub percent: Option<f64>,
}

impl Curve {
    pub fn places(&self) -> Vec<CurvePlace> {
        let of_axis = |by: &ReuseAxis| {
            let plain = self.plain.iter().map(|_| None);
            let place = |percent| CurvePlace { by: *by, percent };
            self.levels(*by).iter().copied().map(Some).chain(plain).map(place).collect::<Vec<_>>()
        };
        self.by.iter().flat_map(of_axis).collect()
    }

    fn levels(&self, by: ReuseAxis) -> &[f64] {
        match by {
            _ if !self.levels_percent.is_empty() => &self.levels_percent,
            ReuseAxis::Hits => &LEVELS_BY_HITS,
            ReuseAxis::Connections => &LEVELS_BY_CONNECTIONS,
        }
    }

    /// Fails where the curve is impossible.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.by.is_empty(), "a curve is by hits, by connections, or both");
        let is_twice = |(index, by): (usize, &ReuseAxis)| self.by[..index].contains(by);
        ensure!(!self.by.iter().enumerate().any(is_twice), "a curve is asked for twice");
        ensure!(
            self.log.is_none() || self.by.contains(&ReuseAxis::Hits),
            "a log is laid over the reuse by hits, which is what it tells: add --by hits"
        );
        ensure!(
            self.levels_percent.iter().all(|level| (0.0..=100.0).contains(level)),
            "levels are percentages, 0 to 100"
        );
        ensure!(self.levels_percent.windows(2).all(|pair| pair[0] < pair[1]), "levels must ascend");
        if self.by.contains(&ReuseAxis::Hits) {
            self.levels(ReuseAxis::Hits).iter().try_for_each(|level| hits_per_handshake(*level).map(drop))?;
        }
        Ok(())
    }
}

/// Requests for each full handshake at this percent reuse by hits: n requests are 1 − 1/n (Mraz et al. 2002, equation
/// 1). Fails where no integer comes near.
pub fn hits_per_handshake(percent: f64) -> Result<u32> {
    ensure!(
        percent < 100.0,
        "at 100 % by hits there would be no handshake at all; the highest level is below 100 (98 is 50 requests for \
         each handshake)"
    );
    let near = 1.0 / (1.0 - percent / 100.0);
    let reached = |hits: f64| 100.0 * (1.0 - 1.0 / hits);
    let (below, above) = (near.floor(), near.ceil());
    let hits = if percent - reached(below) <= reached(above) - percent { below } else { above };
    ensure!(
        (reached(hits) - percent).abs() <= LEVEL_TOLERANCE,
        "{percent} % by hits would be {near:.2} requests for each handshake; the nearest levels are {:.1} ({below} \
         requests) and {:.1} ({above})",
        reached(below),
        reached(above)
    );
    Ok(hits as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_by_hits_are_those_of_the_paper() {
        let hits: Vec<u32> = LEVELS_BY_HITS.iter().map(|level| hits_per_handshake(*level).unwrap()).collect();
        assert_eq!(hits, [1, 2, 4, 10, 25, 50]);
        assert_eq!((hits_per_handshake(97.0).unwrap(), hits_per_handshake(99.5).unwrap()), (33, 200));
        let said = hits_per_handshake(33.0).unwrap_err().to_string();
        assert!(said.contains("1.49 requests") && said.contains("0.0 (1 ") && said.contains("50.0 (2)"), "{said}");
        assert!(hits_per_handshake(100.0).is_err());
    }

    #[test]
    fn every_axis_has_its_levels_and_its_limit() {
        let curve = Curve {
            by: vec![ReuseAxis::Hits, ReuseAxis::Connections],
            levels_percent: vec![0.0, 50.0],
            plain: Some("http://localhost/".to_owned()),
            ..Curve::default()
        };
        curve.check().unwrap();
        let percents: Vec<Option<f64>> = curve.places().iter().map(|place| place.percent).collect();
        assert_eq!(percents, [Some(0.0), Some(50.0), None, Some(0.0), Some(50.0), None]);
        let places = Curve { levels_percent: Vec::new(), plain: None, ..curve.clone() }.places();
        assert_eq!(places.len(), LEVELS_BY_HITS.len() + LEVELS_BY_CONNECTIONS.len());
        let refused = |curve: Curve, word: &str| {
            let said = curve.check().unwrap_err().to_string();
            assert!(said.contains(word), "{said}");
        };
        refused(Curve { levels_percent: vec![50.0, 0.0], ..curve.clone() }, "ascend");
        refused(Curve { levels_percent: vec![150.0], ..curve.clone() }, "0 to 100");
        refused(Curve { by: vec![ReuseAxis::Hits, ReuseAxis::Hits], ..curve.clone() }, "twice");
        let by = vec![ReuseAxis::Connections];
        refused(Curve { by, log: Some("access.log".into()), ..curve.clone() }, "--by hits");
        refused(Curve { levels_percent: vec![33.0], ..curve }, "1.49 requests");
    }
}
