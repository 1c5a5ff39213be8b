//! `tlsdyno ablate`: the main job. Flags build the same experiment that TOML files hold.

pub mod installed_server;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use tlsdyno_base::choice::choice;
use tlsdyno_base::exit::Exit;
use tlsdyno_base::fault::{Fault, OrFault};
use tlsdyno_engine::time::Time;
use tlsdyno_record::model::workload::{HITS_LEAST, HarSpec, NamesSpec, WorkloadSpec};
use tlsdyno_record::model::{
    ClientModel, ConfigurationModel, Experiment, ForeignTraffic, Load, Measure, Method, Server, ServerName,
    SessionCache, TicketKeys, Tls, WorkersModel,
};
use tlsdyno_runner::kinds::AnyExperiment;
use tlsdyno_runner::kinds::flags::{ApplicationArgs, NetworkArgs, RepeatArgs, ServerTlsArgs, libraries, number};
use tlsdyno_runner::kinds::perform::OutputArgs;
use tlsdyno_runner::run::check::CheckExperiment;
use tlsdyno_runner::run::cpus;
use tlsdyno_runner::run::own_command::command_spec;
use tlsdyno_tls::{Group, Stage};
use tlsdyno_traffic::load::values::Header;
use tlsdyno_workloads::flags::{self, ReplayArgs, WorkloadChoice};

use crate::AblationExperiment;

/// The main job: what each TLS component costs a real server, each with its confidence interval
#[derive(clap::Args, Clone, Debug)]
#[command(mut_arg("trace_session_lifetime", |flag| flag.alias("session-lifetime")))]
#[command(mut_arg("trace_keep_alive", |flag| flag.alias("keep-alive")))]
pub struct Args {
    /// Server under test
    #[arg(long, default_value_t, value_parser = choice(ServerName::configured()), help_heading = "Server")]
    server: ServerName,
    /// Your own server and configuration: a command line that stays in the foreground; {port} {plain_port} {docroot}
    /// {dir} {certificate} {key} {pem} are filled in, also in files that it names (as copies: write absolute
    /// paths there)
    #[arg(long, value_name = "COMMAND", conflicts_with = "server", help_heading = "Server")]
    server_command: Option<String>,
    /// Where the server command listens: 127.0.0.1:{port} if nothing else is said, or a fixed 127.0.0.1:8443 (then
    /// configurations take turns by restart). Of another server the address of this machine that workers elsewhere
    /// reach [default: that of --listen]
    #[arg(long, value_name = "IP:PORT", conflicts_with = "server_config", help_heading = "Server")]
    address: Option<String>,
    /// Your installed nginx, Apache, HAProxy or lighttpd: a copy of its configuration with all that it includes, on
    /// free ports of loopback, beside the one that runs; with --paths what is requested of it, otherwise its front
    /// page. Whose it is is told from the file, or with --server
    #[arg(long, value_name = "FILE", conflicts_with = "server_command", help_heading = "Server")]
    server_config: Option<PathBuf>,
    /// Print the copy of --server-config, with what becomes of everything in its first lines, and measure nothing
    #[arg(long, requires = "server_config", help_heading = "Server")]
    print_config: bool,
    #[command(flatten, next_help_heading = "Server")]
    applications: ApplicationArgs,
    /// A directory that your server writes for real. What it writes elsewhere goes to a layer that ends with it, where
    /// this system allows that (root); reading files below a layer takes it some microseconds more. `/`: no layers
    #[arg(long, value_name = "DIR", num_args = 1, help_heading = "Server")]
    writable: Vec<PathBuf>,
    /// The name that clients ask for, with its port where that is not 443 [default: that of --paths, else of the
    /// default server of --server-config, else localhost]
    #[arg(long, value_name = "NAME", help_heading = "Server")]
    host: Option<String>,
    /// A further header of each request to your own server, for example 'Accept: text/html', or @FILE with one
    /// (several times). Other users of this machine read what stands in a command line
    #[arg(short = 'H', long, value_name = "HEADER", help_heading = "Server")]
    header: Vec<Header>,
    /// Certificate, with its chain, for your own server that asks its clients for one (PEM)
    #[arg(long, value_name = "FILE", requires = "client_key", help_heading = "Server")]
    client_cert: Option<PathBuf>,
    /// Key of --client-cert (PEM, without a passphrase)
    #[arg(long, value_name = "FILE", requires = "client_cert", help_heading = "Server")]
    client_key: Option<PathBuf>,
    /// The server uses the OpenSSL in this prefix instead of the system's. Twice: it is measured on both, side by side
    #[arg(long, value_name = "PREFIX", num_args = 1, help_heading = "Server")]
    library: Vec<PathBuf>,
    /// Where the server command serves the same objects without TLS; without it no plain-HTTP share is claimed
    #[arg(long, value_name = "IP:PORT", requires = "server_command", help_heading = "Server")]
    plain_address: Option<String>,
    /// Let the insecure server listen beyond loopback: everybody who reaches it can read and forge everything. With
    /// workers it serves nobody but these and this machine; who sits between still can
    #[arg(long, help_heading = "Server")]
    allow_insecure_listen: bool,

    /// The load is your own (users, wrk, k6): tlsdyno makes none, computes stages twice for moments, and tells what
    /// that takes. Nothing changes on the wire; the server goes on if tlsdyno dies
    #[arg(long, requires = "server_command", help_heading = "Your own traffic")]
    foreign_traffic: bool,
    #[command(flatten, next_help_heading = "Your own traffic")]
    foreign: ForeignTraffic,

    #[command(flatten)]
    tls: ServerTlsArgs,
    /// Key-agreement group; hybrids with ML-KEM need a server on OpenSSL 3.5 or later
    #[arg(long, value_name = "NAME", default_value_t = Group::X25519)]
    #[arg(value_parser = choice(Group::ALL), help_heading = "TLS")]
    group: Group,
    /// The server keeps no sessions: --session-cache off
    #[arg(long, conflicts_with = "session_cache", help_heading = "TLS")]
    no_session_cache: bool,
    /// Where the keys come from that protect the server's session tickets [default: own]
    #[arg(long, value_name = "KEYS", value_parser = choice(TicketKeys::ALL), help_heading = "TLS")]
    ticket_keys: Option<TicketKeys>,
    /// Resumed connections send their first request with the hello (TLS 1.3), and the server takes it
    #[arg(long, help_heading = "TLS")]
    early_data: bool,
    /// The client does not offer encrypt-then-MAC (CBC suites then use the stitched code)
    #[arg(long, help_heading = "TLS")]
    no_encrypt_then_mac: bool,

    /// Synthetic workload [default: ecommerce]
    #[arg(
        long,
        value_enum,
        conflicts_with_all = ["trace", "har", "path", "paths", "server_config", "foreign_traffic"],
        help_heading = "Workload"
    )]
    workload: Option<WorkloadChoice>,
    /// Your own traffic: an access log in common or combined format, plain or gzip
    #[arg(long, value_name = "FILE", help_heading = "Workload")]
    trace: Option<PathBuf>,
    /// Users visit the pages that a browser recorded (HTTP Archive)
    #[arg(long, value_name = "FILE", conflicts_with = "trace", help_heading = "Workload")]
    har: Option<PathBuf>,
    #[command(flatten, next_help_heading = "Workload")]
    replay: ReplayArgs,
    /// One object over and over, by its path on the server command
    #[arg(
        long,
        value_name = "PATH",
        conflicts_with_all = ["trace", "har", "paths"],
        help_heading = "Workload"
    )]
    path: Option<String>,
    /// Several objects of your own server, proxied ones too, as a browser asks for them: a path or URL in each line,
    /// and behind a blank the status where that is not 200
    #[arg(long, value_name = "FILE", conflicts_with_all = ["trace", "har"], help_heading = "Workload")]
    paths: Option<PathBuf>,
    /// Requests of your own server for each connection and its handshake, as your log has them; 2.5 too. Without it
    /// each connection asks for all of --paths, or 12 times for the one path
    #[arg(long, value_name = "N", help_heading = "Workload")]
    #[arg(value_parser = number("a number of hits from 1 to 100,000", 1.0..=100_000.0))]
    hits_per_handshake: Option<f64>,
    /// Size of the department workload; 1 is the paper's 100,000 hits over 530 MB [default: 0.1]
    #[arg(long, value_name = "FACTOR", requires = "workload", help_heading = "Workload")]
    #[arg(value_parser = number("a factor above 0 and up to 100", f64::MIN_POSITIVE..=100.0))]
    scale: Option<f64>,

    #[command(flatten, next_help_heading = "Load")]
    load: Load,

    /// Bound on the measuring time, for example 90 or 3m
    #[arg(short, short_alias = 'd', long, alias = "duration", value_name = "TIME")]
    #[arg(value_parser = tlsdyno_runner::kinds::flags::seconds)]
    #[arg(default_value_t = Measure::default().time_s, help_heading = "Measuring")]
    time: f64,
    /// A first look in 20 seconds: the CPU time of the four components that cost most on most servers, and of plain
    /// HTTP
    #[arg(long, conflicts_with = "time", help_heading = "Measuring")]
    quick: bool,
    /// How the cost of a stage is found out, comma-separated
    #[arg(long, value_name = "METHODS", value_delimiter = ',', default_value = "removing")]
    #[arg(value_parser = choice(Method::ALL), help_heading = "Measuring")]
    method: Vec<Method>,
    /// Only these stages, comma-separated
    #[arg(long, value_name = "STAGES", value_delimiter = ',')]
    #[arg(value_parser = choice(Stage::ALL), help_heading = "Measuring")]
    stages: Vec<Stage>,
    /// Stop when every share of CPU time is known this well, in percentage points to either side; 0 (and with two
    /// libraries): use all of --time
    #[arg(long, value_name = "POINTS", default_value_t = 1.0, help_heading = "Measuring")]
    #[arg(value_parser = number("a number of percentage points from 0 to 100", 0.0..100.0))]
    until: f64,
    /// Length of the slices by which CPU time is compared, for example 20ms; 0: in blocks of tenths of a second only
    /// [default: 5ms, or what the last doctor --calibrate found better]
    #[arg(long, value_name = "TIME", help_heading = "Measuring")]
    slice: Option<Time>,
    #[command(flatten)]
    repeat: RepeatArgs,
    #[command(flatten)]
    network: NetworkArgs,

    #[command(flatten)]
    output: OutputArgs,

    #[command(flatten, next_help_heading = "Several machines")]
    workers: WorkersModel,
}

/// Stages of a first look.
const QUICK_STAGES: [Stage; 4] = [Stage::Authentication, Stage::KeyAgreement, Stage::Cipher, Stage::Kdf];

pub fn run(args: &Args) -> Result<Exit> {
    if let Some(path) = args.server_config.as_ref().filter(|_| args.print_config) {
        let copy = installed_server::printed(path, args.kind(), args.host.as_deref()).or_fault(Fault::Input)?;
        return tlsdyno_base::output::answer(copy);
    }
    let (experiment, told) = args.experiment()?;
    told.iter().for_each(|line| tell!("{line}"));
    AblationExperiment(experiment).perform(&args.output)
}

/// The experiment for these flags, as typed, and the remarks to print before it.
pub fn of_words(words: &[String]) -> Result<(Experiment, Vec<String>)> {
    let command = <Args as clap::Args>::augment_args(clap::Command::new("ablate").no_binary_name(true));
    let given = command.try_get_matches_from(words).or_fault(Fault::Usage)?;
    <Args as clap::FromArgMatches>::from_arg_matches(&given)?.experiment()
}

impl Args {
    /// The experiment for these flags, and the remarks to print before it.
    fn experiment(&self) -> Result<(Experiment, Vec<String>)> {
        let server = self.server_model().or_fault(Fault::Input)?;
        let (tls, told) = installed_server::negotiated(&server, self.tls_model()).or_fault(Fault::Input)?;
        let mut experiment = Experiment {
            methods: self.method.clone(),
            server,
            tls,
            load: self.load.clone(),
            foreign_traffic: self.foreign_traffic.then(|| self.foreign.clone()),
            measure: self.measure_model(),
            workers: self.workers.given(),
            network: self.network.network,
            ..Experiment::default()
        };
        let alone = self.load.reuse_percent.map(|_| 1);
        experiment.load.requests_per_connection = self.load.requests_per_connection.or(alone);
        if self.library.len() > 1 {
            experiment.question =
                "Does a hit cost this server more on the second library, and in which stage?".to_owned();
        }
        experiment.workload = self.workload_spec()?;
        let stages = match self.quick && self.stages.is_empty() {
            true => &QUICK_STAGES[..],
            false => &self.stages,
        };
        if stages.contains(&Stage::Setup) {
            experiment.pin_suite();
        }
        if !stages.is_empty() {
            experiment.configurations = experiment.ablation(stages);
            // A first look has no time for how they overlap.
            experiment.configurations.retain(|model| !self.quick || model.noop.iter().count() < 2);
        }
        experiment.fill();
        if stages.is_empty() {
            self.leave_out_session_cache(&mut experiment)?;
        }
        experiment.check().or_fault(Fault::Usage)?;
        let Measure { server_cpu, load_cpu, .. } = experiment.measure;
        cpus::choose(&cpus::allowed(), server_cpu, load_cpu).or_fault(Fault::Usage)?;
        Ok((experiment, told))
    }

    /// With the shim's session cache, nginx with several servers with TLS makes a full handshake of each resumption
    /// (seen with 1.22, whatever its own cache). The preflight would only find that out.
    fn leave_out_session_cache(&self, experiment: &mut Experiment) -> Result<()> {
        let Some(path) = &self.server_config else { return Ok(()) };
        let servers = installed_server::read(path, self.kind())?.site.tls_servers();
        let has_cache = |model: &ConfigurationModel| model.noop.contains(Stage::SessionCache);
        if servers > 1 && experiment.configurations.iter().any(has_cache) {
            tell!("not measured: the perfect session cache, which takes one server with TLS; here are {servers}");
            experiment.configurations.retain(|model| !has_cache(model));
        }
        Ok(())
    }

    /// Server whose configuration --server-config is, if --server says it.
    fn kind(&self) -> Option<ServerName> {
        (self.server != ServerName::default()).then_some(self.server)
    }

    fn server_model(&self) -> Result<Server> {
        let own = self.server_command.is_some() || self.server_config.is_some();
        ensure!(own || self.writable.is_empty(), "--writable is for --server-command and --server-config");
        ensure!(
            self.server_config.is_some() || self.applications.words().is_empty(),
            "--ask-backend and --i-may-load-this are about applications behind --server-config"
        );
        let asks = !self.header.is_empty() || self.client_cert.is_some();
        let needs_own = self.path.is_some() || self.paths.is_some() || self.host.is_some() || asks;
        ensure!(
            own || !needs_own,
            "--path, --paths, --host, --header and --client-cert are for your own server: give --server-command or \
             --server-config"
        );
        ensure!(self.header.iter().all(|header| !header.is_host()), "--host says what clients ask for, not --header");
        let server = Server {
            kind: if own { ServerName::Command } else { self.server },
            command: self.server_command.clone(),
            address: match own {
                true => Some(self.address.clone().unwrap_or_else(|| "127.0.0.1:{port}".to_owned())),
                false => self.address.clone().or_else(|| self.workers.reach().map(|ip| ip.to_string())),
            },
            plain_address: self.plain_address.clone(),
            config: self.server_config.clone(),
            host: self.host.clone().or(self.listed()?.1),
            ask_backend: self.applications.ask_backend,
            replay_backend: false,
            may_load: self.applications.may_load.clone(),
            client: self.client_model()?,
            libraries: libraries(&self.library)?,
            writable: self.writable.iter().map(|path| writable(path)).collect::<Result<_>>()?,
            allow_insecure_listen: self.allow_insecure_listen,
        };
        match &self.server_config {
            Some(path) => installed_server::fit(path, server, self.kind()),
            None => Ok(server),
        }
    }

    fn client_model(&self) -> Result<ClientModel> {
        ensure!(
            self.client_cert.is_none() || !self.stages.contains(&Stage::Authentication),
            "without `authentication` the server refuses every certificate of a client: leave it out of --stages"
        );
        let file = |path: &Option<PathBuf>| path.as_deref().map(|path| flags::input(path, "client's file")).transpose();
        Ok(ClientModel {
            headers: self.header.iter().map(|header| header.line().trim_end().to_owned()).collect(),
            certificate: file(&self.client_cert)?,
            key: file(&self.client_key)?,
        })
    }

    /// The lines of --paths, and the host in them.
    fn listed(&self) -> Result<(Vec<String>, Option<String>)> {
        let Some(path) = &self.paths else { return Ok((Vec::new(), None)) };
        let text = tlsdyno_base::input::text_of_regular(path).or_fault(Fault::Input)?;
        let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut hosts = std::collections::BTreeSet::new();
        let mut paths = Vec::new();
        for line in lines {
            let Some((_, rest)) = line.split_once("://") else {
                paths.push(line.to_owned());
                continue;
            };
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            hosts.insert(host.to_owned());
            paths.push(if path.is_empty() { "/".to_owned() } else { path.to_owned() });
        }
        ensure!(!paths.is_empty(), "{} names no path", path.display());
        ensure!(hosts.len() < 2, "{} names several hosts; one is measured at a time", path.display());
        Ok((paths, hosts.into_iter().next()))
    }

    fn tls_model(&self) -> Tls {
        let tls = self.tls.tls();
        Tls {
            group: self.group,
            session_cache: if self.no_session_cache { Some(SessionCache::Off) } else { tls.session_cache },
            ticket_keys: self.ticket_keys,
            early_data: self.early_data,
            encrypt_then_mac: !self.no_encrypt_then_mac,
            ..tls
        }
    }

    fn measure_model(&self) -> Measure {
        Measure {
            // How well the shares of one library are known says little of how it differs from another.
            until_percent: (self.until > 0.0 && self.library.len() < 2).then_some(self.until),
            slice_us: self.slice.map(|slice| slice.0.as_micros() as u64),
            // Blocks of a first look would be too short to saturate a server.
            blocks: !self.quick,
            ..self.repeat.measure(if self.quick { 20.0 } else { self.time })
        }
    }

    /// Refuses hits per handshake where the workload or the load determines them already.
    fn check_hits(&self) -> Result<()> {
        ensure!(
            self.trace.is_none() && self.har.is_none(),
            "a log or recording gives the hits per handshake itself; leave --hits-per-handshake out"
        );
        ensure!(
            self.load.reuse_percent.is_none() && self.load.requests_per_connection.is_none(),
            "--reuse and --requests-per-connection say how many hits a handshake has; leave --hits-per-handshake out"
        );
        ensure!(
            !self.foreign_traffic && (self.path.is_some() || self.paths.is_some() || self.server_config.is_some()),
            "--hits-per-handshake is for paths of your own server (--path, --paths, --server-config); a generated \
             workload has its own number"
        );
        ensure!(
            self.path.is_none() || self.hits_per_handshake.is_some_and(|hits| hits.fract() == 0.0),
            "of one --path a connection has a whole number of hits; --paths takes {} too",
            self.hits_per_handshake.unwrap_or_default()
        );
        Ok(())
    }

    fn workload_spec(&self) -> Result<WorkloadSpec> {
        if self.hits_per_handshake.is_some() {
            self.check_hits().or_fault(Fault::Usage)?;
        }
        let serves_ours =
            self.server_config.is_none() && self.server_command.as_ref().is_none_or(|_| self.mentions_docroot());
        let names = if serves_ours { NamesSpec::Files } else { NamesSpec::AsRecorded };
        if let Some(path) = &self.trace {
            ensure!(
                self.server_config.is_none() || self.applications.ask_backend || self.replay.send_methods.is_empty(),
                "--send-methods goes with --ask-backend: answers are replayed to GET and HEAD alone"
            );
            let keep_alive = self.replay.keep_alive.or(self.kept_s()?);
            let replay = ReplayArgs { keep_alive, site: self.host.clone(), ..self.replay.clone() };
            return Ok(replay.workload(flags::input(path, "access log")?, names));
        }
        self.replay.ensure_absent("a workload without --trace LOG").or_fault(Fault::Usage)?;
        if let Some(path) = &self.har {
            let har = HarSpec { users: 20_000, names, ..HarSpec::default() };
            return Ok(WorkloadSpec::Har { path: flags::input(path, "HAR file")?, har });
        }
        let own = self.foreign_traffic.then(|| "/".to_owned());
        if self.paths.is_some() {
            return Ok(WorkloadSpec::of_paths(self.listed()?.0, self.hits_per_handshake));
        }
        if self.path.is_none() && self.server_config.is_some() {
            return Ok(WorkloadSpec::of_paths(vec!["/".to_owned()], self.hits_per_handshake));
        }
        if let Some(path) = self.path.clone().or(own) {
            let requests_per_user = self.hits_per_handshake.map_or(HITS_LEAST, |hits| hits as u32);
            let users = 4_000_000 / requests_per_user.max(200);
            return Ok(WorkloadSpec::Url { path, bytes: None, users, requests_per_user });
        }
        let workload = self.workload.unwrap_or(WorkloadChoice::Ecommerce);
        Ok(workload.spec(None, self.scale.unwrap_or(0.1), 1))
    }

    /// Idle timeout of an installed server's connections, seconds; `None`: no timeout.
    fn kept_s(&self) -> Result<Option<u32>> {
        let Some(path) = &self.server_config else { return Ok(None) };
        let site = installed_server::read(path, self.kind())?.site;
        Ok(site.facts(site.choice(self.host.as_deref()).host.as_deref()).keep_alive_s)
    }

    /// The server command serves the files that are made for it.
    fn mentions_docroot(&self) -> bool {
        let server = Server { command: self.server_command.clone(), ..Server::default() };
        command_spec(&Experiment { server, ..Experiment::default() }, None).mentions("{docroot}")
    }
}

/// Checks that the path is a directory.
fn writable(path: &Path) -> Result<PathBuf> {
    let found = path.canonicalize().with_context(|| format!("--writable {}", path.display()))?;
    ensure!(found.is_dir(), "--writable {}: it is no directory", path.display());
    Ok(found)
}
