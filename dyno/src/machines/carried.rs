//! A plan of the engine on its way to another machine and back into one.

use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{Read, Write};
use tlsdyno_engine::load::{Plan, Request, Share, Target, User, Workload};
use tlsdyno_tls::{Config, Settings};

use super::token::hash_of;
use crate::model::worker::{Data, LoadPlan, TlsOfPlan, WorkloadColumns};

/// Most bytes of data that a plan may name, as they travel and unpacked.
pub const DATA_BYTES_MAX: usize = 512 << 20;

/// A plan for the workers, with the data that it names. Whose part it is, and whether somebody watches, is filled in
/// for each of them.
///
/// # Errors
/// It needs something of this machine.
pub fn pack(plan: &Plan) -> Result<(LoadPlan, Data)> {
    ensure!(
        plan.route.unix_path.is_none(),
        "a Unix socket is on one machine; workers connect over TCP: leave out --unix"
    );
    ensure!(plan.lead_in_ns == 0 && plan.window.is_none(), "neither lead-in nor window can be cut into parts");
    let mut data = Data::new();
    let mut name = |bytes: Vec<u8>| {
        let hash = hash_of(&bytes);
        data.insert(hash.clone(), bytes.into());
        hash
    };
    let tls = match &plan.target.tls {
        None => None,
        Some(config) => {
            let settings = config.settings();
            ensure!(
                settings.client_certificate.is_none(),
                "the private key of --client-cert does not leave this machine; leave it out, or load from here \
                 (--threads)"
            );
            Some(TlsOfPlan {
                versions: settings.versions.clone(),
                suites: settings.suites.clone(),
                groups: settings.groups.clone(),
                server_name: settings.server_name.clone(),
                alpn: settings.alpn.clone(),
                effort: settings.effort,
                tickets: settings.tickets,
                early_data: settings.early_data,
                small_rsa_keys: settings.small_rsa_keys,
                roots: name(packed(&settings.trust_anchors)?),
                now_unix_s: settings.now_unix_s,
            })
        }
    };
    let load = LoadPlan {
        address: plan.target.address,
        host: plan.target.host.clone(),
        tls,
        route: plan.route.clone(),
        body: plan.body.as_ref().map(|body| name(body.to_vec())),
        workload: name(packed(&columns(&plan.workload))?),
        users: plan.users.clone(),
        connections: plan.connections,
        timeouts: plan.timeouts,
        resumption: plan.resumption,
        session_limits: plan.session_limits,
        pacing: plan.pacing,
        until: plan.until,
        redirects: plan.redirects.clone(),
        numbered: plan.numbered,
        slice_ns: plan.slice_ns,
        before_count: 0,
        loops: 0,
        watched: false,
        latencies: false,
    };
    ensure!(
        data.values().map(|bytes| bytes.len()).sum::<usize>() <= DATA_BYTES_MAX,
        "workload and request body take more than {} MiB; workers take no more",
        DATA_BYTES_MAX >> 20
    );
    Ok((load, data))
}

/// The data that a plan names.
pub fn named(load: &LoadPlan) -> impl Iterator<Item = &String> {
    let roots = load.tls.as_ref().map(|tls| &tls.roots);
    roots.into_iter().chain(&load.body).chain([&load.workload])
}

/// The plan of the engine. It has all loops' users and connections yet: each loop takes its part.
///
/// # Errors
/// Data are missing or are not what they should be, or TLS settings cannot work here.
pub fn unpack(load: &LoadPlan, data: &Data) -> Result<Plan> {
    let of = |hash: &String| data.get(hash).with_context(|| format!("the data {hash} are missing"));
    let tls = match &load.tls {
        None => None,
        Some(tls) => {
            let settings = Settings {
                versions: tls.versions.clone(),
                suites: tls.suites.clone(),
                groups: tls.groups.clone(),
                server_name: tls.server_name.clone(),
                alpn: tls.alpn.clone(),
                effort: tls.effort,
                tickets: tls.tickets,
                early_data: tls.early_data,
                small_rsa_keys: tls.small_rsa_keys,
                trust_anchors: unpacked(of(&tls.roots)?)?,
                now_unix_s: tls.now_unix_s,
                ..Settings::default()
            };
            Some(Arc::new(Config::new(settings)?))
        }
    };
    Ok(Plan {
        target: Target { address: load.address, host: load.host.clone(), tls },
        route: load.route.clone(),
        body: load.body.as_ref().map(of).transpose()?.map(Arc::clone),
        workload: Arc::new(workload(unpacked(of(&load.workload)?)?)?),
        users: load.users.clone(),
        connections: load.connections,
        timeouts: load.timeouts,
        resumption: load.resumption,
        session_limits: load.session_limits,
        pacing: load.pacing,
        until: load.until,
        window: None,
        redirects: load.redirects.clone(),
        numbered: load.numbered,
        slice_ns: load.slice_ns,
        lead_in_ns: 0,
        share: Share::default(),
    })
}

fn packed(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    serde_json::to_writer(&mut encoder, value).context("encode data")?;
    encoder.flush().and_then(|()| encoder.finish()).context("pack data")
}

fn unpacked<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let mut text = Vec::new();
    ZlibDecoder::new(bytes).take(DATA_BYTES_MAX as u64).read_to_end(&mut text).context("unpack data")?;
    serde_json::from_slice(&text).context("the data are not what they should be")
}

/// Bits of [`WorkloadColumns::flags`].
const PAGE_END: u8 = 1;
const CLOSE_AFTER: u8 = 2;
const FORGET_SESSION: u8 = 4;

fn columns(workload: &Workload) -> WorkloadColumns {
    let flags = |request: &Request| {
        PAGE_END * u8::from(request.page_end)
            + CLOSE_AFTER * u8::from(request.close_after)
            + FORGET_SESSION * u8::from(request.forget_session)
    };
    WorkloadColumns {
        objects: workload.objects.clone(),
        requested_objects: workload.requests.iter().map(|request| request.object).collect(),
        flags: workload.requests.iter().map(flags).collect(),
        users: workload.users.iter().map(|user| (user.requests.start, user.requests.end)).collect(),
        places: workload.order.clone(),
        at_ms: workload.at_ms.clone(),
    }
}

fn workload(columns: WorkloadColumns) -> Result<Workload> {
    ensure!(
        columns.requested_objects.len() == columns.flags.len(),
        "the columns of the workload are of different length"
    );
    let request = |(object, flags): (u32, u8)| Request {
        object,
        page_end: flags & PAGE_END != 0,
        close_after: flags & CLOSE_AFTER != 0,
        forget_session: flags & FORGET_SESSION != 0,
    };
    Ok(Workload {
        objects: columns.objects,
        requests: columns.requested_objects.into_iter().zip(columns.flags).map(request).collect(),
        users: columns.users.into_iter().map(|(from, to)| User { requests: from..to }).collect(),
        order: columns.places,
        at_ms: columns.at_ms,
    })
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::load::options::{self, Options};
    use crate::load::url::Url;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        options: Options,
    }

    fn plan(flags: &[&str]) -> Plan {
        let flags = <Flags as clap::Parser>::parse_from([&["load"], flags].concat());
        let url = Url::parse("https://127.0.0.1:1/a").unwrap();
        options::plan(&flags.options, &url, "127.0.0.1:1".parse::<SocketAddr>().unwrap()).unwrap()
    }

    #[test]
    fn a_plan_survives_the_way() {
        let body = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(body.path(), "some content").unwrap();
        let body = body.path().to_str().unwrap();
        for flags in [
            &["-k", "--reuse", "80%", "--tls", "1.3", "--alpn", "http/1.1", "--early-data"][..],
            &["-k", "--rate", "333.3333/s", "--arrivals", "poisson", "--seed", "9", "--follow-redirects"],
            &["-k", "--pause", "exp:20ms", "--close", "-n", "77", "--source", "127.0.0.2-127.0.0.5"],
            &[
                "-k",
                "--body-file",
                body,
                "-X",
                "POST",
                "-H",
                "a: b",
                "--first-byte-timeout",
                "1s",
                "--expect-status",
                "any",
            ],
        ] {
            let plan = plan(flags);
            let (load, data) = pack(&plan).unwrap();
            assert_eq!(named(&load).collect::<std::collections::BTreeSet<_>>(), data.keys().collect());
            let line = serde_json::to_string(&load).unwrap();
            let mut arrived = unpack(&serde_json::from_str(&line).unwrap(), &data).unwrap();
            let settings = |plan: &Plan| format!("{:?}", plan.target.tls.as_ref().unwrap().settings());
            assert_eq!(settings(&arrived), settings(&plan), "{flags:?}");
            arrived.target.tls.clone_from(&plan.target.tls);
            assert_eq!(arrived.workload, plan.workload);
            assert_eq!(format!("{:?}", Plan { workload: Arc::default(), ..arrived }), {
                format!("{:?}", Plan { workload: Arc::default(), ..plan })
            });
        }
    }

    #[test]
    fn data_that_are_missing_or_something_else_are_refused() {
        let (load, mut data) = pack(&plan(&["-k"])).unwrap();
        let workload = data.remove(&load.workload).unwrap();
        assert!(format!("{:#}", unpack(&load, &data).unwrap_err()).contains("missing"));
        for wrong in [b"".to_vec(), workload[..workload.len() / 2].to_vec(), packed(&[1]).unwrap()] {
            data.insert(load.workload.clone(), wrong.into());
            unpack(&load, &data).unwrap_err();
        }
        let error = pack(&plan(&["-k", "--unix", "/x"])).unwrap_err().to_string();
        assert!(error.contains("--unix"), "{error}");
    }
}
