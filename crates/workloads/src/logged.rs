//! What a log or a recording tells of requests: how each was made, and what the response was and will be again.

use indexmap::IndexMap;
use tlsdyno_record::model::workload::SentMethod;

/// How a request is made. Methods beside these and POST cannot be replayed against files and become [`Method::Get`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Method {
    Get,
    Head,
    Other(SentMethod),
}

impl Method {
    const POST: Method = Method::Other(SentMethod::Post);

    pub(super) fn from_name(name: &str) -> Option<Method> {
        match name {
            "GET" => Some(Method::Get),
            "HEAD" => Some(Method::Head),
            other => other.parse().ok().map(Method::Other),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Other(other) => other.name(),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Response {
    Whole,
    /// 304: nothing, since the client has it already.
    NotModified,
    /// 206: so many bytes of it.
    Part(u64),
    /// 404 or 410: there is no such object.
    Missing,
    /// What a server of files cannot be made to answer (redirects, refusals, errors, other methods): an object of so
    /// many bytes stands in for it.
    StandIn(u64),
    /// This status, of a server's own objects.
    Other(u16),
}

/// One way of requesting one target; becomes one object of the workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Replay {
    pub target: u32,
    pub method: Method,
    pub response: Response,
}

impl Replay {
    /// How a request by `method` is replayed that was answered with `status` and a body of `bytes`.
    pub(super) fn new(target: u32, method: &str, status: u16, bytes: u64) -> Self {
        let by_files = |method: &Method| matches!(*method, Method::Get | Method::Head | Method::POST);
        let method = Method::from_name(method).filter(by_files);
        let response = match (status, method) {
            (_, None) => Response::StandIn(bytes),
            (200 | 203, _) => Response::Whole,
            (206, Some(Method::Get)) if bytes > 0 => Response::Part(bytes),
            (206, Some(Method::Head)) => Response::Whole,
            (304, Some(Method::Get | Method::Head)) => Response::NotModified,
            (404 | 410, _) => Response::Missing,
            _ => Response::StandIn(bytes),
        };
        Self { target, method: method.unwrap_or(Method::Get), response }
    }

    /// The same for a server's own objects: the logged status is expected, and what had been revalidated is fetched,
    /// for what it was compared with is not recorded.
    pub(super) fn as_recorded(target: u32, method: &str, status: u16, bytes: u64) -> Self {
        let method = Method::from_name(method).unwrap_or(Method::Get);
        let response = match status {
            200 | 304 => Response::Whole,
            206 if method == Method::Get && bytes > 0 => Response::Part(bytes),
            other => Response::Other(other),
        };
        Self { target, method, response }
    }

    pub(super) fn kind(&self) -> &'static str {
        match (self.response, self.method) {
            (Response::NotModified, _) => "conditional",
            (Response::Part(_), _) => "range",
            (Response::Missing | Response::Other(404 | 410), _) => "missing",
            (Response::Other(_), _) => "other_status",
            (Response::StandIn(_), _) => "stand_in",
            (Response::Whole, Method::Get) => "get",
            (Response::Whole, Method::Head) => "head",
            (Response::Whole, Method::Other(_)) => "post",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Hit {
    pub user: u32,
    /// Index into the replays, and so into the workload's objects.
    pub object: u32,
    /// Seconds, counted from an arbitrary point.
    pub at_s: u32,
}

/// The distinct request targets as logged, and what is known of each.
pub(super) type Targets = IndexMap<Box<[u8]>, RequestTarget>;

/// The place of `key` among those of `map`, where it is put if it is new.
pub(super) fn place<Value: Default>(map: &mut IndexMap<Box<[u8]>, Value>, key: &[u8]) -> u32 {
    let place = map.get_index_of(key).unwrap_or_else(|| map.insert_full(key.into(), Value::default()).0);
    // There are no more than requests, which fit 32 bits.
    place as u32
}

#[derive(Debug, Default)]
pub(super) struct RequestTarget {
    /// Sizes of whole responses to GET.
    pub sizes: SizeCounts,
    /// Largest response of another kind that the object must be able to give: POST, or a part. Bytes.
    pub other_bytes: u64,
}

impl RequestTarget {
    pub(super) fn note(&mut self, replay: &Replay, bytes: u64) {
        match (replay.method, replay.response) {
            (Method::Get, Response::Whole) => self.sizes.add(bytes),
            (Method::POST, Response::Whole) | (_, Response::Part(_)) => self.other_bytes = self.other_bytes.max(bytes),
            _ => {}
        }
    }
}

/// How often which size occurred, for a few sizes: real objects have one or two; a page made anew each time has
/// thousands.
#[derive(Debug, Default)]
pub(super) struct SizeCounts {
    counts: Vec<(u64, u32)>,
    pub varying: bool,
}

impl SizeCounts {
    const KEPT: usize = 8;

    fn add(&mut self, bytes: u64) {
        if let Some((_, count)) = self.counts.iter_mut().find(|(size, _)| *size == bytes) {
            *count += 1;
            return;
        }
        self.varying |= !self.counts.is_empty();
        if self.counts.len() < Self::KEPT {
            self.counts.push((bytes, 1));
            return;
        }
        // Misra and Gries 1982: every size that occurs in more than one in nine responses stays among those kept.
        self.counts.iter_mut().for_each(|(_, count)| *count -= 1);
        self.counts.retain(|(_, count)| *count > 0);
    }

    /// The most usual size, the larger of two equally usual, bytes.
    pub(super) fn usual(&self) -> Option<u64> {
        self.counts.iter().map(|(size, count)| (*count, *size)).max().map(|(_, size)| size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_counted_keep_the_usual_one_among_thousands() {
        let mut counts = SizeCounts::default();
        for round in 0..10_000_u64 {
            counts.add(if round % 3 == 0 { 777 } else { round });
            assert!(counts.counts.len() <= SizeCounts::KEPT);
        }
        assert_eq!(counts.usual(), Some(777));
        assert!(counts.varying);
    }
}
