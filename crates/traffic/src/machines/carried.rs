//! A plan of the engine on its way to another process, on this machine or another, and back into one.

use std::io::{BufWriter, IntoInnerError, Read};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use flate2::Compression;
use flate2::read::ZlibDecoder;
use flate2::write::ZlibEncoder;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tlsdyno_engine::load::{Plan, Workload};
use tlsdyno_record::model::packed::{Data, PackedPlan};
use tlsdyno_sys::monotonic_ns;
use tlsdyno_tls::{ClientCertificate, Config, Session, Settings, Stage};

use super::token::hash_of;

/// Most bytes of data that a plan may name, as they travel and unpacked.
pub const DATA_BYTES_MAX: usize = 512 << 20;

const PACKED_AT_ONCE_BYTES: usize = 64 * 1024;

const SETTINGS_MAX: usize = 64;

pub const UNIX_SOCKET_IS_HERE: &str = "a Unix socket is on one machine; workers connect over TCP: leave out --unix";

pub const NETWORK_IS_HERE: &str =
    "a network is between clients and servers of this machine; workers have that of their own: leave out one of them";

pub fn check(plan: &Plan) -> Result<()> {
    ensure!(plan.route.unix_path.is_none(), UNIX_SOCKET_IS_HERE);
    ensure!(plan.window.is_none(), "a window cannot be cut into parts");
    let certificate = plan.target.tls.as_ref().and_then(|config| config.settings().client_certificate.as_ref());
    ensure!(
        certificate.is_none(),
        "the private key of --client-cert does not leave this machine; leave it out, or load from here (--threads)"
    );
    Ok(())
}

/// Makes plans of the engine fit to travel. It remembers what it has packed, for a load is often followed by one of the
/// same workload.
#[derive(Debug, Default)]
pub struct Packer {
    workload: Option<(Arc<Workload>, String)>,
    roots: Vec<(Arc<Config>, Option<String>)>,
    /// Data that the plans so far have named.
    pub data: Data,
}

impl Packer {
    /// The plan, packed; [`Packer::data`] has what it names.
    pub fn pack(&mut self, plan: &Plan) -> Result<PackedPlan> {
        let tls = plan.target.tls.as_ref();
        let packed = PackedPlan {
            plan: Plan { workload: Arc::default(), body: None, ..plan.clone() },
            tls: tls.map(|config| Settings { trust_anchors: Vec::new(), ..config.settings().clone() }),
            roots: tls.map_or(Ok(None), |config| self.roots(config))?,
            body: plan.body.as_ref().map(|body| self.name(Arc::clone(body))),
            workload: self.workload(&plan.workload)?,
        };
        ensure!(
            packed.named().map(|hash| self.data[hash].len()).sum::<usize>() <= DATA_BYTES_MAX,
            "workload and request body take more than {} MiB; workers take no more",
            DATA_BYTES_MAX >> 20
        );
        Ok(packed)
    }

    pub fn has_packed(&self, workload: &Arc<Workload>) -> bool {
        self.workload.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, workload))
    }

    fn name(&mut self, bytes: Arc<[u8]>) -> String {
        let hash = hash_of(&bytes);
        self.data.insert(hash.clone(), bytes);
        hash
    }

    fn workload(&mut self, workload: &Arc<Workload>) -> Result<String> {
        if let Some((_, hash)) = self.workload.as_ref().filter(|_| self.has_packed(workload)) {
            return Ok(hash.clone());
        }
        let hash = self.name(packed(&**workload)?.into());
        if let Some((_, other)) = self.workload.replace((Arc::clone(workload), hash.clone()))
            && other != hash
        {
            self.data.remove(&other);
        }
        Ok(hash)
    }

    fn roots(&mut self, config: &Arc<Config>) -> Result<Option<String>> {
        if let Some((_, hash)) = self.roots.iter().find(|(known, _)| Arc::ptr_eq(known, config)) {
            return Ok(hash.clone());
        }
        let anchors = &config.settings().trust_anchors;
        let hash = if anchors.is_empty() { None } else { Some(self.name(packed(anchors)?.into())) };
        if self.roots.len() == SETTINGS_MAX {
            self.roots.remove(0);
        }
        self.roots.push((Arc::clone(config), hash.clone()));
        Ok(hash)
    }
}

/// Makes them plans of the engine again, and remembers what it has unpacked.
#[derive(Debug, Default)]
pub struct Unpacker {
    workload: Option<(String, Arc<Workload>)>,
    /// Keyed by the text that was received.
    tls: Vec<(String, Arc<Config>)>,
}

impl Unpacker {
    /// The plan of the engine, for a client with this certificate: who has the signatures of the server's side off
    /// makes none either. It has all loops' users and connections yet: each loop takes its part.
    pub fn unpack(
        &mut self,
        load: &PackedPlan,
        data: &Data,
        certificate: Option<&Arc<ClientCertificate>>,
    ) -> Result<Plan> {
        let data_named = |hash: &String| data.get(hash).with_context(|| format!("the data {hash} are missing"));
        let mut plan = load.plan.clone();
        plan.body = load.body.as_ref().map(data_named).transpose()?.map(Arc::clone);
        plan.target.tls = match &load.tls {
            Some(settings) => {
                Some(self.tls(settings, load.roots.as_ref().map(data_named).transpose()?, certificate)?)
            }
            None => None,
        };
        plan.workload = match &self.workload {
            Some((hash, workload)) if *hash == load.workload => Arc::clone(workload),
            _ => {
                let workload: Arc<Workload> = Arc::new(unpacked(data_named(&load.workload)?)?);
                self.workload = Some((load.workload.clone(), Arc::clone(&workload)));
                workload
            }
        };
        Ok(plan)
    }

    fn tls(
        &mut self,
        settings: &Settings,
        roots: Option<&Arc<[u8]>>,
        certificate: Option<&Arc<ClientCertificate>>,
    ) -> Result<Arc<Config>> {
        let sent = serde_json::to_string(settings)? + &roots.map(|roots| hash_of(roots)).unwrap_or_default();
        if let Some((_, config)) = self.tls.iter().find(|(known, _)| *known == sent) {
            return Ok(Arc::clone(config));
        }
        let trust_anchors = roots.map_or(Ok(Vec::new()), |roots| unpacked(roots))?;
        // It counts as received now, by the clock of this machine.
        let received = |session: &Session| Session::from_bytes(&session.to_bytes(), monotonic_ns() / 1_000_000);
        let universal = settings.universal.as_ref().map(received).transpose()?;
        let client_certificate = certificate.filter(|_| !settings.stages_off.contains(Stage::Authentication)).cloned();
        let config = Config::new(Settings { trust_anchors, universal, client_certificate, ..settings.clone() })?;
        let config = Arc::new(config);
        if self.tls.len() == SETTINGS_MAX {
            self.tls.remove(0);
        }
        self.tls.push((sent, Arc::clone(&config)));
        Ok(config)
    }
}

fn packed(value: &impl Serialize) -> Result<Vec<u8>> {
    // The encoder is slow on the few bytes that come from a number.
    let mut buffer = BufWriter::with_capacity(PACKED_AT_ONCE_BYTES, ZlibEncoder::new(Vec::new(), Compression::fast()));
    serde_json::to_writer(&mut buffer, value).context("encode data")?;
    let encoder = buffer.into_inner().map_err(IntoInnerError::into_error).context("pack data")?;
    ensure!(
        encoder.total_in() <= DATA_BYTES_MAX as u64,
        "the workload takes {} MiB unpacked; workers take no more than {}",
        encoder.total_in() >> 20,
        DATA_BYTES_MAX >> 20
    );
    encoder.finish().context("pack data")
}

fn unpacked<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    let mut text = Vec::new();
    ZlibDecoder::new(bytes).take(DATA_BYTES_MAX as u64).read_to_end(&mut text).context("unpack data")?;
    serde_json::from_slice(&text).context("the data are not what they should be")
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::load::options::Options;
    use crate::load::plan;
    use crate::load::url::Url;

    #[derive(clap::Parser)]
    struct Flags {
        #[command(flatten)]
        options: Options,
    }

    fn plan(flags: &[&str]) -> Plan {
        let flags = <Flags as clap::Parser>::parse_from([&["load"], flags].concat());
        let url = Url::parse("https://127.0.0.1:1/a").unwrap();
        plan::plan(&flags.options, &url, "127.0.0.1:1".parse::<SocketAddr>().unwrap()).unwrap()
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
            let mut packer = Packer::default();
            let load = packer.pack(&plan).unwrap();
            assert_eq!(packer.pack(&plan).unwrap().workload, load.workload);
            let data = &packer.data;
            assert_eq!(load.named().collect::<std::collections::BTreeSet<_>>(), data.keys().collect());
            let line = serde_json::to_string(&load).unwrap();
            let mut arrived = Unpacker::default().unpack(&serde_json::from_str(&line).unwrap(), data, None).unwrap();
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
        let mut packer = Packer::default();
        let load = packer.pack(&plan(&["-k"])).unwrap();
        let mut data = packer.data.clone();
        let workload = data.remove(&load.workload).unwrap();
        let unpack = |data: &Data| Unpacker::default().unpack(&load, data, None).unwrap_err();
        assert!(format!("{:#}", unpack(&data)).contains("missing"));
        for wrong in [b"".to_vec(), workload[..workload.len() / 2].to_vec(), packed(&[1]).unwrap()] {
            data.insert(load.workload.clone(), wrong.into());
            unpack(&data);
        }
        let error = check(&plan(&["-k", "--unix", "/x"])).unwrap_err().to_string();
        assert!(error.contains("--unix"), "{error}");
    }
}
