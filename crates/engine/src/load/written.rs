//! How parts of a workload and of an outcome are written that serde does not know how to write by itself.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{self, Serializer as _, V2Serializer};
use serde::de::{Deserialize, Deserializer, Error as _};
use serde::ser::{Error as _, Serialize, Serializer};

use super::limits::LATENCY_NS_MAX;
use super::outcome::Phase;
use super::plan::Request;

/// Histograms of latencies by phase: the V2 serialisation of HdrHistogram, base64.
pub mod histograms {
    use super::*;

    type Histograms = BTreeMap<Phase, Histogram<u64>>;

    pub fn serialize<S: Serializer>(phases: &Histograms, serializer: S) -> Result<S::Ok, S::Error> {
        let text = |(phase, histogram): (&Phase, &Histogram<u64>)| {
            let mut bytes = Vec::new();
            V2Serializer::new().serialize(histogram, &mut bytes).map_err(S::Error::custom)?;
            Ok((*phase, STANDARD.encode(bytes)))
        };
        phases.iter().map(text).collect::<Result<BTreeMap<_, _>, S::Error>>()?.serialize(serializer)
    }

    /// Reads what [`serialize`] wrote. Bounds and digits must be those of this engine: others cannot be added to them.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Histograms, D::Error> {
        let histogram = |(phase, text): (Phase, String)| {
            let bytes = STANDARD.decode(text).map_err(D::Error::custom)?;
            let histogram: Histogram<u64> = serialization::Deserializer::new()
                .deserialize(&mut bytes.as_slice())
                .map_err(|_| D::Error::custom("what should be a histogram is none"))?;
            match (histogram.low(), histogram.high(), histogram.sigfig()) {
                (1, LATENCY_NS_MAX, 3) => Ok((phase, histogram)),
                _ => Err(D::Error::custom("a histogram has other bounds than those of this tool")),
            }
        };
        BTreeMap::<Phase, String>::deserialize(deserializer)?.into_iter().map(histogram).collect()
    }
}

/// Requests of a workload: the number of the object and a sum of flags, for there are millions.
pub mod requests {
    use super::*;

    const PAGE_END: u8 = 1;
    const CLOSE_AFTER: u8 = 2;
    const FORGET_SESSION: u8 = 4;

    pub fn serialize<S: Serializer>(requests: &[Request], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(requests.iter().map(|request| {
            let flags = PAGE_END * u8::from(request.page_end)
                + CLOSE_AFTER * u8::from(request.close_after)
                + FORGET_SESSION * u8::from(request.forget_session);
            (request.object, flags)
        }))
    }

    /// Reads what [`serialize`] wrote.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<Request>, D::Error> {
        let request = |(object, flags): (u32, u8)| Request {
            object,
            page_end: flags & PAGE_END != 0,
            close_after: flags & CLOSE_AFTER != 0,
            forget_session: flags & FORGET_SESSION != 0,
        };
        Ok(Vec::<(u32, u8)>::deserialize(deserializer)?.into_iter().map(request).collect())
    }
}

/// Counts by status. Within a part that serde flattens, it hands over the keys of a map as text.
pub fn statuses<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<u16, u64>, D::Error> {
    let by_text = BTreeMap::<String, u64>::deserialize(deserializer)?;
    by_text.into_iter().map(|(status, count)| Ok((status.parse().map_err(D::Error::custom)?, count))).collect()
}
