//! `ecommerce`: the secure part of a shop, synthetic, to the aggregates of Coarfa et al. 2006 section 2.2.1.
//!
//! Published: one full handshake in about twelve requests, objects of 7 KB on average, a working set of 279 KB (section
//! 2.2), 22 % new and 78 % returning customers, whole pages (HTML and images) fetched together over at most four
//! connections, the next page only after the last. Not published: the pages themselves. Chosen here (docs/WORKLOADS.md
//! gives the reasons):
//!
//! - a user is one purchase: three pages of one HTML document and three images, twelve requests, one TLS session;
//! - ten pages of equal weight, five for new and five for returning customers, so that any block of users is equal
//!   work;
//! - connections close at the end of each page: filling in a form takes longer than the servers of the time kept a
//!   connection (Apache 1.3: 15 s). Run it with one request per connection: the work is then the same however fast the
//!   server is, and the published gain of the session cache implies it.

use anyhow::{Result, ensure};
use tlsdyno_base::random::SplitMix64;
use tlsdyno_engine::load::{Request, Workload};

use super::{DocrootFile, Parts, add_user};

/// Working set: 279 KB (Coarfa et al. 2006 section 2.2), in bytes.
const WORKING_SET_BYTES: u64 = 279 * 1024;
const IMAGES_PER_PAGE: usize = 3;
/// Pages of one purchase; with four objects each, twelve requests to one full handshake (section 2.2.1).
const PAGES_PER_PURCHASE: usize = 3;
/// In each so many purchases exactly [`NEW_PER_DECK`] are by new customers: 22 % (section 2.2.1).
const DECK: usize = 50;
const NEW_PER_DECK: usize = 11;

/// One page: its name, the size of its HTML document in bytes, and how its images share the rest of the page's weight.
struct Page {
    name: &'static str,
    html_bytes: u64,
    image_shares: [u64; IMAGES_PER_PAGE],
}

const fn page(name: &'static str, html_bytes: u64, image_shares: [u64; IMAGES_PER_PAGE]) -> Page {
    Page { name, html_bytes, image_shares }
}

/// Each kind of customer enters by its first page, passes one of the middle three and leaves by its last.
const PAGES: [Page; 10] = [
    page("new/register", 12_288, [6, 3, 1]),
    page("new/address", 14_336, [5, 3, 2]),
    page("new/payment", 16_384, [7, 2, 1]),
    page("new/delivery", 10_240, [8, 1, 1]),
    page("new/confirm", 13_312, [5, 4, 1]),
    page("returning/sign-in", 9_216, [6, 2, 2]),
    page("returning/address", 11_264, [4, 3, 3]),
    page("returning/payment", 15_360, [7, 2, 1]),
    page("returning/delivery", 12_800, [6, 3, 1]),
    page("returning/confirm", 17_408, [5, 3, 2]),
];
const PAGES_PER_KIND: usize = PAGES.len() / 2;
const OBJECTS_PER_PAGE: usize = 1 + IMAGES_PER_PAGE;

/// Most users: keeps the number of requests far within 32 bits.
const MAX_USERS: u32 = 10_000_000;

/// Makes the workload: `users` purchases. `seed` decides which customers are new and which pages they pass.
pub(super) fn make(users: u32, seed: u64) -> Result<Parts> {
    ensure!((1..=MAX_USERS).contains(&users), "the ecommerce workload is made for 1 to {MAX_USERS} users, not {users}");
    let files = files();
    let objects = files.iter().map(DocrootFile::object).collect();
    let mut random = SplitMix64::new(seed);
    let mut deck = [false; DECK];
    let mut workload = Workload { objects, ..Workload::default() };
    for user in 0..users as usize {
        if user % DECK == 0 {
            deck.fill(false);
            deck[..NEW_PER_DECK].fill(true);
            random.shuffle(&mut deck);
        }
        add_purchase(&mut workload, deck[user % DECK], &mut random);
    }
    Ok(Parts { workload, files })
}

/// Appends one purchase: the first page, one of those in the middle, the last.
fn add_purchase(workload: &mut Workload, new_customer: bool, random: &mut SplitMix64) {
    let kind = if new_customer { 0 } else { PAGES_PER_KIND };
    let middle = 1 + random.below(PAGES_PER_KIND - 2);
    let pages: [usize; PAGES_PER_PURCHASE] = [kind, kind + middle, kind + PAGES_PER_KIND - 1];
    let objects = pages.into_iter().flat_map(|page| page * OBJECTS_PER_PAGE..(page + 1) * OBJECTS_PER_PAGE);
    let request = |object: usize| {
        let page_end = (object + 1).is_multiple_of(OBJECTS_PER_PAGE);
        Request { object: object as u32, page_end, close_after: page_end, forget_session: false }
    };
    add_user(workload, objects.map(request));
}

fn files() -> Vec<DocrootFile> {
    let pages = PAGES.len() as u64;
    let mut files = Vec::new();
    for (index, page) in PAGES.iter().enumerate() {
        // What does not divide evenly goes, byte by byte, to the first pages.
        let page_bytes = WORKING_SET_BYTES / pages + u64::from((index as u64) < WORKING_SET_BYTES % pages);
        let images_bytes = page_bytes - page.html_bytes;
        let shares: u64 = page.image_shares.iter().sum();
        files.push(DocrootFile { path: format!("/{}.html", page.name), bytes: page.html_bytes });
        let mut left = images_bytes;
        for (image, share) in page.image_shares.iter().enumerate() {
            let last = image == IMAGES_PER_PAGE - 1;
            let bytes = if last { left } else { images_bytes * share / shares };
            left -= bytes;
            files.push(DocrootFile { path: format!("/{}-{}.gif", page.name, image + 1), bytes });
        }
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes(parts: &Parts) -> Vec<u64> {
        parts.workload.objects.iter().map(|object| object.expect.body_bytes.unwrap()).collect()
    }

    #[test]
    fn it_has_the_published_aggregates_at_any_seed_and_number_of_users() {
        for (users, seed) in [(50, 0), (1_000, 1), (777, 42)] {
            let parts = make(users, seed).unwrap();
            let sizes = sizes(&parts);
            let hits = parts.workload.requests.len();
            assert_eq!(sizes.iter().sum::<u64>(), 279 * 1024, "working set of 279 KB");
            assert_eq!(hits, users as usize * 12, "one full handshake per user: one in twelve requests");
            let sent: u64 = parts.workload.requests.iter().map(|request| sizes[request.object as usize]).sum();
            let mean_kb = sent as f64 / hits as f64 / 1024.0;
            assert!((6.95..7.05).contains(&mean_kb), "mean object 7 KB, measured {mean_kb}");
        }
    }

    #[test]
    fn every_object_is_used_and_new_customers_are_22_percent() {
        let parts = make(500, 7).unwrap();
        let mut hits = vec![0_u32; parts.workload.objects.len()];
        for request in &parts.workload.requests {
            hits[request.object as usize] += 1;
        }
        assert_eq!(hits.len(), 40);
        assert!(hits.iter().all(|&count| count > 0), "{hits:?}");
        let register = parts.files.iter().position(|file| file.path == "/new/register.html").unwrap();
        assert_eq!(hits[register], 110, "22 % of 500 customers are new");
    }

    #[test]
    fn pages_are_whole_and_connections_close_at_their_end() {
        let parts = make(20, 9).unwrap();
        for user in &parts.workload.users {
            let requests = &parts.workload.requests[user.requests.start as usize..user.requests.end as usize];
            for page in requests.chunks(4) {
                let ends: Vec<bool> = page.iter().map(|request| request.page_end).collect();
                assert_eq!(ends, [false, false, false, true]);
                assert!(page[3].close_after && !page[0].close_after);
                assert!(parts.files[page[0].object as usize].path.ends_with(".html"), "the HTML document comes first");
                assert!(page.iter().all(|request| !request.forget_session));
            }
        }
    }

    #[test]
    fn any_block_of_users_is_equal_work() {
        let parts = make(100, 5).unwrap();
        let sizes = sizes(&parts);
        let work: Vec<u64> = parts
            .workload
            .users
            .iter()
            .map(|user| {
                let requests = &parts.workload.requests[user.requests.start as usize..user.requests.end as usize];
                requests.iter().map(|request| sizes[request.object as usize]).sum()
            })
            .collect();
        let (least, most) = (work.iter().min().unwrap(), work.iter().max().unwrap());
        assert!(most - least <= 3, "{least} to {most} bytes");
    }
}
