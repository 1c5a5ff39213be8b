//! `cdnow`: the shop that Mraz, Witting and Dantzig 2002 size their proxies for (section 4.5), 25 objects in two pages.
//!
//! Published: two pages of about 11.1 KB of content, the first one HTML document and 11 GIF images, the second one and
//! 12; all 25 requested in one session, so 96 % of the hits reuse it. Chosen here: 11.1 KB is the weight of each page
//! (docs/WORKLOADS.md), half of it the document.

use anyhow::{Result, ensure};
use tlsdyno_engine::load::{Request, Workload};

use super::{DocrootFile, Parts, add_user};

/// Images of the first and of the second page.
const IMAGES: [u32; 2] = [11, 12];
const OBJECTS: u32 = 25;
/// Weight of a page: 11.1 KB, in bytes.
const PAGE_BYTES: u64 = 11_366;
/// Most users: 2^32 - 1 requests.
const MAX_USERS: u32 = u32::MAX / OBJECTS;

/// Makes the workload: each of `users` fetches both pages over connections that it keeps, then leaves.
pub(super) fn make(users: u32) -> Result<Parts> {
    ensure!((1..=MAX_USERS).contains(&users), "the cdnow workload is made for 1 to {MAX_USERS} users, not {users}");
    let files = files();
    let mut workload = Workload { objects: files.iter().map(DocrootFile::object).collect(), ..Workload::default() };
    let request = |object| {
        let close_after = object + 1 == OBJECTS;
        Request { object, page_end: close_after || object == IMAGES[0], close_after, forget_session: false }
    };
    for _ in 0..users {
        add_user(&mut workload, (0..OBJECTS).map(request));
    }
    Ok(Parts { workload, files })
}

fn files() -> Vec<DocrootFile> {
    let mut files = Vec::new();
    for (page, images) in IMAGES.iter().enumerate() {
        let images = u64::from(*images);
        let image_bytes = PAGE_BYTES / 2 / images;
        let html_bytes = PAGE_BYTES - image_bytes * images;
        files.push(DocrootFile { path: format!("/shop/page{}.html", page + 1), bytes: html_bytes });
        files.extend(
            (1..=images)
                .map(|image| DocrootFile { path: format!("/shop/page{}-{image}.gif", page + 1), bytes: image_bytes }),
        );
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_25_objects_in_two_pages_of_11_1_kb_and_one_session() {
        let parts = make(3).unwrap();
        assert_eq!((parts.files.len(), parts.workload.requests.len(), parts.workload.users.len()), (25, 75, 3));
        let pages = [&parts.files[..12], &parts.files[12..]];
        for page in pages {
            assert_eq!(page.iter().map(|file| file.bytes).sum::<u64>(), PAGE_BYTES);
            assert!(page[0].path.ends_with(".html") && page[1..].iter().all(|file| file.path.ends_with(".gif")));
        }
        let ends: Vec<usize> = (0..25).filter(|at| parts.workload.requests[*at].page_end).collect();
        assert_eq!(ends, [11, 24]);
        let closes: Vec<usize> = (0..75).filter(|at| parts.workload.requests[*at].close_after).collect();
        assert_eq!(closes, [24, 49, 74]);
        // Mraz et al. formula 1: one full handshake in 25 hits.
        assert!((1.0 - 3.0 / 75.0_f64 - 0.96).abs() < 1e-12);
    }
}
