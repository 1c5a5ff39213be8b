//! The requests of a log, user by user: their order, the pages they form, and where connections and sessions end.

use std::collections::HashMap;

use tlsdyno_engine::load::{Request, User};
use tlsdyno_record::model::workload::{OrderSpec, ReplaySpec, SessionsSpec};

use super::logged::Hit;

/// Embedded objects belong to a page as long as each is requested within so many seconds of the one before. Logs have
/// whole seconds, so 2 means: more than one second and less than three.
const PAGE_GAP_S: u32 = 2;

/// Requests and users from hits in the order of the log, and the place of each request there. `embedded` says of each
/// object whether a page would embed it.
///
/// A user's requests keep the order of the log. The time between two of them is counted from the latest seen of that
/// user, so that stamps running backwards (a log is written as requests end, but stamped as they begin) are no gap at
/// all.
pub(super) fn make(
    hits: &[Hit],
    users: usize,
    embedded: &[bool],
    rules: &ReplaySpec,
) -> (Vec<Request>, Vec<User>, Vec<u32>) {
    let order = group_by_user(hits, users);
    let mut requests = Vec::with_capacity(hits.len());
    let mut ranges = Vec::with_capacity(users);
    for places in order.chunk_by(|one, other| hits[*one as usize].user == hits[*other as usize].user) {
        let first = requests.len() as u32;
        add_user(hits, places, embedded, rules, &mut requests);
        ranges.push(User { requests: first..requests.len() as u32 });
    }
    (requests, ranges, order)
}

/// When each request was made, in milliseconds after the earliest, for requests in `order` (see [`make`]). Stamps have
/// whole seconds: the requests of one second are spread over it in the order of the log. A stamp that runs backwards
/// counts as the user's one before it.
pub(super) fn times(hits: &[Hit], order: &[u32]) -> Vec<u64> {
    let first_s = hits.iter().map(|hit| hit.at_s).min().unwrap_or(0);
    let mut in_second: HashMap<u32, (u64, u64)> = HashMap::new();
    hits.iter().for_each(|hit| in_second.entry(hit.at_s).or_default().0 += 1);
    let spread = |hit: &Hit| {
        let (count, count_so_far) = in_second.entry(hit.at_s).or_default();
        *count_so_far += 1;
        u64::from(hit.at_s - first_s) * 1000 + (*count_so_far - 1) * 1000 / *count
    };
    let at_ms: Vec<u64> = hits.iter().map(spread).collect();
    let mut latest = (u32::MAX, 0);
    let ascending = |place: &u32| {
        let (user, at_ms) = (hits[*place as usize].user, at_ms[*place as usize]);
        latest = (user, if user == latest.0 { at_ms.max(latest.1) } else { at_ms });
        latest.1
    };
    order.iter().map(ascending).collect()
}

/// The places of the hits sorted by user, otherwise in the order of the log.
fn group_by_user(hits: &[Hit], users: usize) -> Vec<u32> {
    let mut next = vec![0_u32; users + 1];
    hits.iter().for_each(|hit| next[hit.user as usize + 1] += 1);
    for user in 0..users {
        next[user + 1] += next[user];
    }
    let mut sorted = vec![0; hits.len()];
    for (place, hit) in (0..).zip(hits) {
        let at = &mut next[hit.user as usize];
        sorted[*at as usize] = place;
        *at += 1;
    }
    sorted
}

/// Appends the requests of one user, whose hits are at these places.
fn add_user(hits: &[Hit], places: &[u32], embedded: &[bool], rules: &ReplaySpec, requests: &mut Vec<Request>) {
    let lifetime_s = match rules.sessions {
        SessionsSpec::PerAddress => u32::MAX,
        SessionsSpec::LifetimeS(seconds) => seconds,
    };
    let mut latest_s = 0;
    for (index, place) in places.iter().enumerate() {
        let hit = &hits[*place as usize];
        let gap_s = if index == 0 { 0 } else { hit.at_s.saturating_sub(latest_s) };
        latest_s = latest_s.max(hit.at_s);
        let forget_session = gap_s > lifetime_s;
        let same_page = rules.order == OrderSpec::Pages && embedded[hit.object as usize] && gap_s <= PAGE_GAP_S;
        if let Some(before) = requests.last_mut().filter(|_| index > 0) {
            before.close_after = rules.keep_alive_s == 0 || gap_s > rules.keep_alive_s || forget_session;
            before.page_end = before.close_after || !same_page;
        }
        let last = index + 1 == places.len();
        requests.push(Request { object: hit.object, page_end: last, close_after: last, forget_session });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Requests of one user at these times (seconds), each object embedded or not, in short: `P` page end, `C` close,
    /// `F` forget.
    fn marks(times: &[u32], embedded: &[bool], rules: &ReplaySpec) -> Vec<String> {
        let hits: Vec<Hit> = times
            .iter()
            .enumerate()
            .map(|(object, at_s)| Hit { user: 0, object: object as u32, at_s: *at_s })
            .collect();
        let (requests, users, order) = make(&hits, 1, embedded, rules);
        assert!(order.iter().copied().eq(0..times.len() as u32));
        assert_eq!(users, [User { requests: 0..times.len() as u32 }]);
        requests
            .iter()
            .map(|request| {
                let mark = |set, letter| if set { letter } else { "" };
                [mark(request.page_end, "P"), mark(request.close_after, "C"), mark(request.forget_session, "F")]
                    .concat()
            })
            .collect()
    }

    #[test]
    fn gaps_end_connections_and_then_sessions() {
        let rules = ReplaySpec::default();
        assert_eq!(marks(&[100, 175, 251, 551, 852], &[false; 5], &rules), ["P", "PC", "PC", "PC", "PCF"]);
        let per_address = ReplaySpec { sessions: SessionsSpec::PerAddress, ..rules };
        assert_eq!(marks(&[100, 90_000], &[false; 2], &per_address), ["PC", "PC"]);
    }

    #[test]
    fn stamps_that_run_backwards_are_no_gap() {
        let rules = ReplaySpec::default();
        assert_eq!(marks(&[1_000, 100, 1_050, 2_000], &[false; 4], &rules), ["P", "P", "PC", "PCF"]);
    }

    #[test]
    fn a_session_that_lives_shorter_than_a_connection_ends_both() {
        let rules = ReplaySpec { sessions: SessionsSpec::LifetimeS(10), ..ReplaySpec::default() };
        assert_eq!(marks(&[0, 20], &[false; 2], &rules), ["PC", "PCF"]);
    }

    #[test]
    fn pages_are_a_document_and_what_it_embeds() {
        let rules = ReplaySpec { order: OrderSpec::Pages, ..ReplaySpec::default() };
        let embedded = [false, true, true, true, false, true];
        // The fourth comes too late; the fifth is a document; the sixth comes after the connection was closed.
        assert_eq!(marks(&[10, 11, 13, 16, 16, 100], &embedded, &rules), ["", "", "P", "P", "PC", "PC"]);
    }

    #[test]
    fn times_are_those_of_the_log_spread_over_each_second() {
        let hit = |user, at_s| Hit { user, object: 0, at_s };
        let hits = [hit(0, 101), hit(1, 101), hit(0, 100), hit(1, 103), hit(0, 101), hit(1, 101)];
        let (_, _, order) = make(&hits, 2, &[false], &ReplaySpec::default());
        assert_eq!(times(&hits, &order), [1000, 1000, 1500, 1250, 3000, 3000]);
    }

    #[test]
    fn users_are_in_order_of_appearance_and_keep_their_own_order() {
        let hit = |user, object| Hit { user, object, at_s: 0 };
        let hits = [hit(0, 5), hit(1, 6), hit(0, 7), hit(2, 8), hit(1, 9)];
        let (requests, users, order) = make(&hits, 3, &[false; 10], &ReplaySpec::default());
        let objects: Vec<u32> = requests.iter().map(|request| request.object).collect();
        assert_eq!(objects, [5, 7, 6, 9, 8]);
        assert_eq!(order, [0, 2, 1, 4, 3], "where each was in the log");
        let ranges: Vec<_> = users.into_iter().map(|user| user.requests).collect();
        assert_eq!(ranges, [0..2, 2..4, 4..5]);
    }
}
