//! The load engine over plain HTTP: equal work, every way a server can fail, and how a run ends.

mod support;

use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use support::*;
use tlsdyno_engine::load::{
    Arrivals, Connections, ErrorKind, Expect, HeldSessions, NextTurn, Pacing, Phase, Rate, Rated, Share, Snapshot,
    Turn, Until, Workload, run, run_in_turns, run_together, watch,
};

#[test]
fn equal_work_is_done_to_the_last_request() {
    let address = server(well_behaved);
    let objects = vec![
        object("GET", "/100", Some(100)),
        object("GET", "/0", Some(0)),
        object("HEAD", "/9999", Some(0)),
        object("GET", "/300000", Some(300_000)),
    ];
    for (total, per_user, each) in [(1, 1, None), (8, 4, None), (8, 1, Some(1)), (5, 2, Some(3))] {
        let plan = plan(address, workload(objects.clone(), 20, 12, 4), connections(total, per_user, each));
        let outcome = go(&plan);
        assert_eq!(outcome.hits, 240, "{:?}", outcome.errors);
        assert!(outcome.errors.is_empty() && !outcome.stopped && !outcome.gave_up);
        assert_eq!(outcome.body_bytes, 20 * 3 * 300_100);
        assert_eq!(outcome.phases[&Phase::WholeResponse].len(), 240);
        assert_eq!(outcome.phases[&Phase::FirstByte].len(), 240);
        assert_eq!(outcome.phases[&Phase::TcpConnect].len(), outcome.connections);
        assert!(!outcome.phases.contains_key(&Phase::FullHandshake));
        assert!(outcome.elapsed_ns > 0 && outcome.client_cpu_ns > 0);
        match each {
            Some(1) => assert_eq!(outcome.connections, 240),
            None => assert!((20..=20 * u64::from(per_user)).contains(&outcome.connections)),
            Some(_) => {}
        }
    }
}

#[test]
fn a_schedule_whose_first_arrival_lies_beyond_its_end_ends_in_time() {
    let mut plan =
        plan(server(well_behaved), workload(vec![object("GET", "/100", Some(100))], 2, 1, 1), connections(2, 1, None));
    plan.pacing = Pacing::Open(Rate { per_second: 1e-6, arrivals: Arrivals::Poisson, seed: 1 });
    plan.until = Until::Elapsed(30_000_000);
    let outcome = go(&plan);
    assert_eq!((outcome.hits, outcome.connections, outcome.unserved), (0, 0, 0));
    assert!(!outcome.gave_up && !outcome.stopped && outcome.errors.is_empty());
}

/// Answers every request with two bytes, and counts the requests.
fn counting_server() -> (std::net::SocketAddr, Arc<AtomicU64>) {
    let served = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&served);
    let address = server(move |stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while next_request(&mut reader).is_some() {
            counter.fetch_add(1, Ordering::SeqCst);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
    });
    (address, served)
}

/// Users whose requests no processor is through with in the seconds of a test: none of them connects anew.
fn endless(users: u32) -> Workload {
    workload(vec![object("GET", "/2", Some(2))], users, 500_000, 1)
}

/// Kept connections are made in the lead-in, and what the server does before and after it is not counted.
#[test]
fn a_lead_in_does_not_count() {
    let (address, served) = counting_server();
    let mut plan = plan(address, endless(2), connections(2, 1, None));
    (plan.lead_in_ns, plan.until) = (1_000_000_000, Until::Elapsed(2_000_000_000));
    let outcome = go(&plan);
    assert_eq!((outcome.connections, outcome.errors.len()), (0, 0), "{:?}", outcome.errors);
    assert!(outcome.hits > 0, "nothing in {} ns", outcome.elapsed_ns);
    assert_eq!(outcome.phases[&Phase::FirstByte].len(), outcome.hits);
    assert!(served.load(Ordering::Relaxed) > outcome.hits, "what came in the lead-in counts too");
    plan.until = Until::Laps(1);
    assert!(run(&plan, &AtomicBool::new(false)).is_err(), "a part of no time");
}

/// Loops that begin together count in the same time, however late one of them connects.
#[test]
fn parts_count_behind_the_lead_in_of_all() {
    const MS: u64 = 1_000_000;
    let (address, _) = counting_server();
    let mut whole = plan(address, endless(4), connections(4, 1, None));
    (whole.lead_in_ns, whole.until) = (1_500 * MS, Until::Elapsed(2_500 * MS));
    let at_ns = tlsdyno_sys::monotonic_ns();
    let part = |index: u32| {
        let part = whole.part(Share { index, count: 2 }).unwrap();
        run_together(&part, &AtomicBool::new(false), None, || {
            std::thread::sleep(Duration::from_millis(1_000) * index);
            Some(at_ns)
        })
        .unwrap()
    };
    let outcomes = std::thread::scope(|scope| {
        let late = scope.spawn(|| part(1));
        [part(0), late.join().unwrap()]
    });
    for outcome in outcomes {
        let (began_ns, ended_ns) = (outcome.began_ns - at_ns, outcome.began_ns + outcome.elapsed_ns - at_ns);
        // A lead-in of its own would end at 2,500 ms.
        assert!((1_500 * MS..2_400 * MS).contains(&began_ns) && outcome.hits > 0, "{began_ns} ns");
        assert!((2_500 * MS..3_400 * MS).contains(&ended_ns), "{ended_ns} ns");
    }
}

#[test]
fn request_bodies_are_sent_whole() {
    let received = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&received);
    let address = server(move |stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        while let Some(asked) = next_request(&mut reader) {
            counter.fetch_add(asked.body_bytes, Ordering::Relaxed);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
        }
    });
    let mut post = object("POST", "/", Some(2));
    post.body_bytes = 20_000_000;
    let small = tlsdyno_engine::load::Object { body_bytes: 10, ..post.clone() };
    let outcome = go(&plan(address, workload(vec![post, small], 2, 4, 1), connections(2, 1, None)));
    assert_eq!((outcome.hits, outcome.errors.len()), (8, 0), "{:?}", outcome.errors);
    assert_eq!(received.load(Ordering::Relaxed), 4 * 20_000_010);
}

/// Its listener is alive and so is the system behind it, but nobody answers: a time-out for each of a thousand users
/// would take minutes.
#[test]
fn a_server_that_hangs_is_given_up() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let workload = workload(vec![object("GET", "/1", Some(1))], 1000, 1, 1);
    let timeout_ns = 50_000_000;
    let connections = Connections { timeout_ns, ..connections(4, 1, None) };
    let outcome = go(&plan(listener.local_addr().unwrap(), workload, connections));
    assert!(outcome.gave_up && outcome.hits == 0);
    assert!(outcome.elapsed_ns >= 2 * timeout_ns - timeout_ns / 8, "{} ns", outcome.elapsed_ns);
    assert!(outcome.connections <= 8 && outcome.errors.keys().eq(&[ErrorKind::Timeout]), "{:?}", outcome.errors);
}

/// Answers every request with `answer`, then closes.
fn answering(answer: &'static [u8]) -> impl Fn(TcpStream) + Send + Sync + 'static {
    move |stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        if next_request(&mut reader).is_some() {
            let _ = stream.write_all(answer);
        }
    }
}

#[test]
fn every_fault_has_its_kind() {
    let cases: [(&'static [u8], ErrorKind); 9] = [
        (b"SSH-2.0-OpenSSH_9.2\r\n", ErrorKind::Http),
        (&[0xff; 100_000], ErrorKind::Http),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxyz", ErrorKind::Http),
        (b"", ErrorKind::Closed),
        (b"HTTP/1.1 200 OK\r\n", ErrorKind::Closed),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort", ErrorKind::Closed),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", ErrorKind::Closed),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 1\r\n\r\nx", ErrorKind::Status),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nxx", ErrorKind::Length),
    ];
    for (answer, kind) in cases {
        let address = server(answering(answer));
        let outcome = go(&plan(address, workload(vec![object("GET", "/", Some(1))], 3, 2, 1), connections(2, 1, None)));
        assert_eq!(outcome.hits, 0);
        assert_eq!(outcome.errors.iter().collect::<Vec<_>>(), [(&kind, &6)], "{:?}", String::from_utf8_lossy(answer));
    }
}

#[test]
fn a_body_may_last_until_the_end_of_the_connection() {
    let address = server(answering(b"HTTP/1.0 200 OK\r\n\r\nx"));
    let outcome = go(&plan(address, workload(vec![object("GET", "/", Some(1))], 2, 3, 1), connections(2, 1, None)));
    assert_eq!((outcome.hits, outcome.connections, outcome.errors.len()), (6, 6, 0));
}

#[test]
fn a_server_that_closes_kept_connections_loses_no_request() {
    // Closes without a word after the third answer: the next request may already be on its way.
    let address = server(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        for _ in 0..3 {
            if next_request(&mut reader).is_none() {
                return;
            }
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").unwrap();
        }
        let _ = next_request(&mut reader);
    });
    let outcome = go(&plan(address, workload(vec![object("GET", "/", Some(1))], 4, 30, 1), connections(4, 1, None)));
    assert_eq!((outcome.hits, outcome.errors.len()), (120, 0), "{:?}", outcome.errors);
    assert_eq!(outcome.connections, 40);
}

#[test]
fn resets_are_told_from_closes() {
    let address = server(|mut stream| {
        let mut some = [0; 4];
        stream.read_exact(&mut some).unwrap();
        // Closing with unread input makes the kernel send a reset.
    });
    let outcome = go(&plan(address, workload(vec![object("GET", "/", None)], 5, 1, 1), connections(1, 1, None)));
    assert_eq!(outcome.errors.into_iter().collect::<Vec<_>>(), [(ErrorKind::Reset, 5)]);
}

/// As servers do with bodies that are too large: the reset that follows must not hide the answer.
#[test]
fn an_answer_counts_though_the_server_reads_no_further_and_resets() {
    let address = server(|mut stream| {
        let mut some = [0; 4];
        stream.read_exact(&mut some).unwrap();
        stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 1\r\n\r\nx").unwrap();
        // Closing with unread input makes the kernel send a reset.
    });
    let mut post = object("POST", "/", Some(1));
    post.body_bytes = 20_000_000;
    post.expect.status = Some(413);
    let outcome = go(&plan(address, workload(vec![post], 50, 1, 1), connections(4, 1, None)));
    assert_eq!((outcome.hits, outcome.errors.len()), (50, 0), "{:?}", outcome.errors);
}

#[test]
fn a_silent_server_times_out() {
    let address = server(|mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
    });
    let mut connections = connections(4, 1, None);
    connections.timeout_ns = 80_000_000;
    let began = Instant::now();
    let outcome = go(&plan(address, workload(vec![object("GET", "/", None)], 4, 1, 1), connections));
    assert_eq!(outcome.errors.into_iter().collect::<Vec<_>>(), [(ErrorKind::Timeout, 4)]);
    assert!(began.elapsed() >= Duration::from_millis(80));
}

#[test]
fn a_slow_server_that_makes_progress_does_not_time_out() {
    let address = server(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        if next_request(&mut reader).is_some() {
            for &byte in b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx" {
                stream.write_all(&[byte]).unwrap();
                std::thread::sleep(Duration::from_millis(40));
            }
        }
    });
    let mut connections = connections(1, 1, Some(1));
    connections.timeout_ns = 1_000_000_000;
    let outcome = go(&plan(address, workload(vec![object("GET", "/", Some(1))], 1, 1, 1), connections));
    assert_eq!((outcome.hits, outcome.errors.len()), (1, 0), "{:?}", outcome.errors);
}

#[test]
fn a_server_that_announces_to_close_but_does_not_is_closed() {
    let address = server(|stream| {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut stream = stream;
        next_request(&mut reader);
        stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx").unwrap();
        let _ = next_request(&mut reader);
    });
    let connections = connections(1, 1, None);
    let outcome = go(&plan(address, workload(vec![object("GET", "/", Some(1))], 1, 2, 1), connections));
    assert_eq!((outcome.hits, outcome.errors.len()), (2, 0), "{:?}", outcome.errors);
}

#[test]
fn a_refusing_port_makes_the_run_give_up() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut plan = plan(address, workload(vec![object("GET", "/", None)], 10, 1, 1), connections(4, 1, None));
    let outcome = go(&plan);
    assert_eq!(outcome.errors.into_iter().collect::<Vec<_>>(), [(ErrorKind::Refused, 10)]);
    assert!(!outcome.gave_up);

    plan.until = Until::Elapsed(60_000_000_000);
    let began = Instant::now();
    let outcome = go(&plan);
    assert!(outcome.gave_up && began.elapsed() < Duration::from_secs(5));
    assert_eq!(outcome.errors[&ErrorKind::Refused], 1000);
}

#[test]
fn a_server_that_dies_ends_the_run_and_keeps_what_was_measured() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let mut streams: Vec<_> = (0..4).map(|_| listener.accept().unwrap().0).collect();
        for _ in 0..50 {
            for stream in &mut streams {
                let mut reader = BufReader::new(stream.try_clone().unwrap());
                next_request(&mut reader).unwrap();
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").unwrap();
            }
        }
        streams.iter().for_each(|stream| stream.shutdown(Shutdown::Both).unwrap());
    });
    let mut plan = plan(address, workload(vec![object("GET", "/", Some(1))], 4, 1000, 1), connections(4, 1, None));
    plan.until = Until::Elapsed(60_000_000_000);
    let outcome = go(&plan);
    server.join().unwrap();
    assert!(outcome.gave_up);
    assert_eq!(outcome.hits, 200);
    assert!(outcome.errors.values().sum::<u64>() >= 1000);
}

#[test]
fn time_connections_and_requests_end_a_run() {
    let address = server(well_behaved);
    let mut plan = plan(address, workload(vec![object("GET", "/1", Some(1))], 3, 5, 1), connections(3, 1, None));
    plan.until = Until::Elapsed(200_000_000);
    let outcome = go(&plan);
    assert!((200..2000).contains(&(outcome.elapsed_ns / 1_000_000)), "{}", outcome.elapsed_ns);
    assert!(outcome.hits > 0 && outcome.errors.is_empty() && !outcome.stopped);

    plan.until = Until::ConnectionsMade(50);
    plan.connections.requests_each = Some(1);
    let outcome = go(&plan);
    assert_eq!((outcome.connections, outcome.hits, outcome.errors.len()), (50, 50, 0));

    plan.until = Until::Requests(50);
    plan.connections.requests_each = None;
    let outcome = go(&plan);
    assert_eq!((outcome.hits, outcome.errors.len()), (50, 0));
    assert!(outcome.connections < 50, "{} connections", outcome.connections);
    plan.until = Until::Requests(2);
    let outcome = go(&plan);
    assert_eq!((outcome.connections, outcome.hits, outcome.errors.len()), (2, 2, 0), "no connection without a request");
}

#[test]
fn a_stop_ends_a_run_at_once_and_keeps_what_was_measured() {
    let address = server(well_behaved);
    let mut plan = plan(address, workload(vec![object("GET", "/1", Some(1))], 3, 5, 1), connections(3, 1, None));
    plan.until = Until::Elapsed(60_000_000_000);
    let (mut watcher, mut watched) = watch(true, 1);
    let stop = AtomicBool::new(false);
    let (outcome, last) = std::thread::scope(|scope| {
        let run = scope.spawn(|| run_together(&plan, &stop, watched.pop(), || Some(0)).unwrap());
        let last = loop {
            watcher.ask();
            match watcher.snapshot() {
                Some(snapshot) if snapshot.hits >= 100 => break snapshot,
                _ => std::thread::yield_now(),
            }
        };
        stop.store(true, Ordering::Relaxed);
        (run.join().unwrap(), last)
    });
    assert!(outcome.stopped && outcome.hits >= last.hits);
    assert!(last.connections > 0 && last.client_cpu_ns > 0 && last.errors.iter().all(|count| *count == 0));
}

/// Between its turns a load sends nothing, and keeps its connections; what leads in is not counted.
#[test]
fn a_load_in_turns_rests_between_them_on_its_connections() {
    let (address, served) = counting_server();
    let workload = endless(6);
    for each in [None, Some(1), Some(3)] {
        let mut plan = plan(address, workload.clone(), connections(6, 1, each));
        served.store(0, Ordering::SeqCst);
        plan.until = Until::Elapsed(60_000_000_000);
        let stop = AtomicBool::new(false);
        let mut turns: Vec<Turn> = Vec::new();
        let mut ask = |turn: Option<Turn>| {
            turns.extend(turn);
            let told: u64 = turns.iter().map(|turn| turn.hits).sum();
            assert_eq!(served.load(Ordering::SeqCst), told, "a request that is of no turn");
            match turns.len() {
                0 => Some(NextTurn::LeadsIn(6)),
                1..5 => Some(NextTurn::Lasts(10_000_000)),
                _ => None,
            }
        };
        let outcome = run_in_turns(&plan, &stop, &mut HeldSessions::new(plan.resumption), &mut ask).unwrap();
        let [lead_in, counted @ ..] = &turns[..] else { panic!("there are turns") };
        // A pause of the machine may leave a turn without a hit.
        assert!(lead_in.hits >= 6 && counted.iter().any(|turn| turn.hits > 0), "{turns:?}");
        let (hits, length_ns): (u64, u64) =
            counted.iter().fold((0, 0), |sum, turn| (sum.0 + turn.hits, sum.1 + turn.ended_ns - turn.began_ns));
        assert_eq!((outcome.hits, outcome.elapsed_ns), (hits, length_ns));
        assert_eq!(outcome.phases[&Phase::WholeResponse].len(), hits);
        assert!(outcome.errors.is_empty() && (each.is_some() || outcome.connections == 6), "{:?}", outcome.errors);
        assert_eq!(served.load(Ordering::SeqCst), lead_in.hits + hits);
    }
}

#[test]
fn a_display_is_told_counts_and_the_latencies_since_it_last_asked() {
    let address = server(well_behaved);
    let mut plan = plan(address, workload(vec![object("GET", "/1", Some(1))], 3, 5, 1), connections(3, 1, None));
    plan.until = Until::Elapsed(60_000_000_000);
    let (mut watcher, mut watched) = watch(true, 1);
    let stop = AtomicBool::new(false);
    let (outcome, snapshots) = std::thread::scope(|scope| {
        let run = scope.spawn(|| run_together(&plan, &stop, watched.pop(), || Some(0)).unwrap());
        // One question at a time: an answer that is not taken before the next one is lost with its latencies.
        let mut answer = || {
            watcher.ask();
            loop {
                match watcher.snapshot() {
                    Some(snapshot) => break snapshot,
                    None => std::thread::yield_now(),
                }
            }
        };
        let snapshots: Vec<Snapshot> = (0..20).map(|_| answer()).collect();
        stop.store(true, Ordering::Relaxed);
        (run.join().unwrap(), snapshots)
    });
    let last = snapshots.last().unwrap();
    let whole = |snapshot: &Snapshot| snapshot.recent[Phase::WholeResponse as usize];
    assert_eq!(snapshots.iter().map(|snapshot| whole(snapshot).count).sum::<u64>(), last.hits);
    assert!(last.hits > 0 && last.hits <= outcome.hits);
    assert!(snapshots.is_sorted_by_key(|snapshot| (snapshot.at_ns, snapshot.hits, snapshot.client_cpu_ns)));
    assert!(snapshots.iter().map(whole).all(|whole| whole.p50_ns <= whole.p99_ns));
}

#[test]
fn plans_that_cannot_be_run_are_refused() {
    let sound = || {
        plan("127.0.0.1:1".parse().unwrap(), workload(vec![object("GET", "/", None)], 2, 1, 1), connections(1, 1, None))
    };
    let refuse = |break_it: fn(&mut tlsdyno_engine::load::Plan), word: &str| {
        let mut plan = sound();
        break_it(&mut plan);
        let error = run(&plan, &AtomicBool::new(false)).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    refuse(|plan| plan.users = 1..3, "users");
    refuse(|plan| plan.users = 1..1, "no requests");
    refuse(|plan| plan.connections.total = 0, "at least 1");
    refuse(|plan| plan.connections.total = 70_000, "ports");
    refuse(|plan| plan.connections.timeout_ns = 0, "time-out");
    refuse(|plan| plan.resumption = tlsdyno_engine::load::Resumption::Share(1.5), "between 0 and 1");
    refuse(|plan| plan.until = Until::ConnectionsMade(0), "no connections");
    refuse(|plan| plan.until = Until::Requests(0), "no requests");
    refuse(|plan| Arc::make_mut(&mut plan.workload).requests[0].object = 1, "object");
    let any = Expect::default();
    assert_eq!((any.status, any.body_bytes), (None, None));
}

/// A client that receives at a rate gets no more than that, keeps most of it, and survives a server that closes while a
/// line still carries its answer.
#[test]
fn clients_receive_at_their_rate() {
    const MS: u64 = 1_000_000;
    let address = server(well_behaved);
    for each in [None, Some(1), Some(3)] {
        let objects = vec![object("GET", "/10000", Some(10_000)), object("GET", "/0", Some(0))];
        let mut plan = plan(address, workload(objects, 40, 10, 1), connections(8, 1, each));
        plan.rated = Some(Rated { bits_per_second: 4_000_000, keep_bits_per_second: 400_000 });
        (plan.lead_in_ns, plan.until) = (100 * MS, Until::Elapsed(1_600 * MS));
        let begun = Instant::now();
        let outcome = go(&plan);
        let kept = outcome.kept.expect("clients that received at a rate");
        assert!(outcome.errors.is_empty() && !outcome.gave_up, "{:?}", outcome.errors);
        assert_eq!(
            (kept.clients_count, kept.kept_count, kept.counted_ns),
            (8, 8, 1_500 * MS),
            "requests each: {each:?}"
        );
        let rate = kept.mean_bits_per_second();
        assert!((400e3..=4e6).contains(&rate), "{rate} bits a second");
        // An answer of 10 KB takes 20 ms: in 1.5 s no client can get more than 75, and an empty one with each.
        assert!(outcome.hits <= 8 * 2 * 76, "{} hits", outcome.hits);
        assert!(begun.elapsed() < Duration::from_secs(5), "what lines still carry at the end is not waited for");
    }
    let mut plan = plan(address, workload(vec![object("GET", "/1", Some(1))], 2, 1, 1), connections(2, 1, None));
    plan.rated = Some(Rated { bits_per_second: 1, keep_bits_per_second: 1 });
    assert!(run(&plan, &AtomicBool::new(false)).is_err(), "without a time there is no rate");
}
