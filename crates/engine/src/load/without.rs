//! A workload without what a server cannot answer.

use std::collections::BTreeSet;

use super::{Request, User, Workload};

/// The workload without these objects, by their places. Pages end, connections close and sessions are forgotten where
/// they did; users without a request are gone.
pub fn without(workload: &Workload, lost: &BTreeSet<u32>) -> Workload {
    let mut places = vec![0; workload.objects.len()];
    let mut left = Workload::default();
    for (place, object) in workload.objects.iter().enumerate().filter(|(place, _)| !lost.contains(&(*place as u32))) {
        places[place] = left.objects.len() as u32;
        left.objects.push(object.clone());
    }
    for user in &workload.users {
        let first = left.requests.len();
        let mut forgets = false;
        for at in user.requests.start as usize..user.requests.end as usize {
            let request = workload.requests[at];
            forgets |= request.forget_session;
            if !lost.contains(&request.object) {
                let object = places[request.object as usize];
                left.requests.push(Request { object, forget_session: std::mem::take(&mut forgets), ..request });
                left.order.extend(workload.order.get(at));
                left.at_ms.extend(workload.at_ms.get(at));
            } else if let Some(before) = left.requests[first..].last_mut() {
                before.page_end |= request.page_end;
                before.close_after |= request.close_after;
            }
        }
        if left.requests.len() > first {
            left.users.push(User { requests: first as u32..left.requests.len() as u32 });
        }
    }
    // Places have no gaps.
    let mut sorted = left.order.clone();
    sorted.sort_unstable();
    left.order.iter_mut().for_each(|place| *place = sorted.partition_point(|other| other < place) as u32);
    left
}

#[cfg(test)]
mod tests {
    use super::super::{Expect, Object};
    use super::*;

    fn getting(path: &str) -> Object {
        let (method, path) = ("GET".to_owned(), path.to_owned());
        Object { method, path, headers: String::new(), body_bytes: 0, expect: Expect::default() }
    }

    #[test]
    fn what_is_left_keeps_its_pages_and_its_order() {
        let request =
            |object, page_end, close_after, forget_session| Request { object, page_end, close_after, forget_session };
        let workload = Workload {
            objects: ["/a", "/b", "/c"].map(getting).into(),
            requests: vec![
                request(0, false, false, false),
                request(1, true, true, false),
                request(1, true, false, true),
                request(2, true, false, false),
                request(1, true, false, false),
                request(0, true, false, false),
            ],
            users: vec![User { requests: 0..4 }, User { requests: 4..5 }, User { requests: 5..6 }],
            order: vec![0, 2, 3, 5, 1, 4],
            at_ms: vec![0, 20, 30, 50, 10, 40],
        };
        let left = without(&workload, &BTreeSet::from([1]));
        assert_eq!(left.objects.iter().map(|object| object.path.as_str()).collect::<Vec<_>>(), ["/a", "/c"]);
        assert_eq!(
            left.requests,
            [request(0, true, true, false), request(1, true, false, true), request(0, true, false, false)]
        );
        assert_eq!(left.users, [User { requests: 0..2 }, User { requests: 2..3 }]);
        assert_eq!((left.order, left.at_ms), (vec![0, 2, 1], vec![0, 50, 40]));
        assert_eq!(without(&workload, &BTreeSet::new()), workload);
    }
}
