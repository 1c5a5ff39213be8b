//! The machine of a record, as far as it changes what cryptography and the kernel cost.
//!
//! CPUs of one name differ: a virtual machine may have AVX-512 IFMA today, by which RSA takes half the time, and not
//! tomorrow. Records of unlike machines are told apart by [`unlike`], in every command that compares some.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Flags of x86 and features of aarch64 in /proc/cpuinfo by which TLS libraries choose their code.
const FEATURES: &str = "adx aes asimd avx avx2 avx512bw avx512dq avx512f avx512ifma avx512vl avx_ifma bmi2 gfni \
    pclmulqdq pmull sha1 sha2 sha3 sha512 sha_ni sm3 sm4 ssse3 sve sve2 vaes vpclmulqdq";

/// Variables by which TLS libraries and the C library are told to use other code than the CPU allows.
const VARIABLES: &str = "GLIBC_TUNABLES GNUTLS_CPUID_OVERRIDE GODEBUG OPENSSL_armcap OPENSSL_ia32cap OPENSSL_ppccap \
    OPENSSL_riscvcap OPENSSL_s390xcap";
/// NSS has one variable for each piece of hardware.
const VARIABLES_OF_NSS: &str = "NSS_DISABLE_";

/// What `list` shows of the features: those by which the same model differs most.
const NOTABLE: &str = "avx512ifma avx_ifma vaes sha_ni adx aes sha2";

/// So many of the first of [`Machine::facts`] tell another CPU, or another use of it.
const OF_CPU: usize = 2;

/// What is known of a machine. Unknown texts are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Name of the CPU's model, as /proc/cpuinfo has it.
    pub name: String,
    /// Vendor; on aarch64 the number of the implementer.
    pub vendor: String,
    /// Family; on aarch64 the architecture.
    pub family: String,
    /// Number of the model; on aarch64 the part.
    pub model: String,
    /// Stepping; on aarch64 variant and revision.
    pub stepping: String,
    /// Revision of the microcode.
    pub microcode: String,
    /// Maker of the virtual machine, as it calls itself.
    pub hypervisor: String,
    /// Features of the CPU that cryptography uses.
    pub features: BTreeSet<String>,
    /// Caches of the first CPU, as the kernel tells them: `L3 unified 32768K of CPUs 0-1`.
    pub caches: Vec<String>,
    /// CPUs that share a core, where some do.
    pub siblings: BTreeSet<String>,
    /// Vulnerabilities of the CPU, with what the kernel does about them.
    pub mitigations: BTreeMap<String, String>,
    /// Version of control groups.
    pub control_groups: String,
    /// Clock source of the kernel.
    pub clock_source: String,
    /// Variables that change which features are used, as the server under test got them; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<BTreeMap<String, String>>,
}

impl Machine {
    /// This machine, without the server's environment.
    pub fn here() -> Machine {
        let read = |path: &Path| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
        let system = Path::new("/sys/devices/system");
        let entries = |path: &str| {
            let all = fs::read_dir(system.join(path)).into_iter().flatten().flatten();
            all.map(|entry| entry.path()).collect::<BTreeSet<PathBuf>>()
        };
        let mut machine = Machine::of_cpuinfo(&read(Path::new("/proc/cpuinfo")));
        machine.caches = (entries("cpu/cpu0/cache").iter().filter(|path| path.join("level").exists()))
            .map(|path| {
                let of = ["level", "type", "size", "shared_cpu_list"].map(|name| read(&path.join(name)));
                format!("L{} {} {} of CPUs {}", of[0], of[1].to_lowercase(), of[2], of[3])
            })
            .collect();
        let lists = entries("cpu").into_iter().map(|path| read(&path.join("topology/thread_siblings_list")));
        machine.siblings = lists.filter(|list| list.contains([',', '-'])).collect();
        let name = |path: &Path| path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned());
        let told = entries("cpu/vulnerabilities").into_iter().map(|path| (name(&path), read(&path)));
        machine.mitigations = told.filter(|(_, state)| state != "Not affected").collect();
        let is_second = Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
        machine.control_groups = if is_second { "version 2" } else { "version 1" }.to_owned();
        machine.clock_source = read(&system.join("clocksource/clocksource0/current_clocksource"));
        let maker = read(Path::new("/sys/class/dmi/id/sys_vendor"));
        let is_told = !machine.hypervisor.is_empty() && !maker.is_empty();
        Machine { hypervisor: if is_told { maker } else { machine.hypervisor }, ..machine }
    }

    /// From the text of /proc/cpuinfo: of its first CPU.
    pub fn of_cpuinfo(text: &str) -> Machine {
        let first = text.split("\n\n").next().unwrap_or_default().lines();
        let lines: BTreeMap<&str, &str> =
            first.filter_map(|line| line.split_once(':')).map(|(name, value)| (name.trim(), value.trim())).collect();
        let of = |x86: &str, aarch64: &str| (*lines.get(x86).or(lines.get(aarch64)).unwrap_or(&"")).to_owned();
        let flags = of("flags", "Features");
        let variant = lines.get("CPU variant").map_or(String::new(), |variant| format!("{variant}."));
        let is_virtual = flags.split(' ').any(|flag| flag == "hypervisor");
        Machine {
            name: of("model name", ""),
            vendor: of("vendor_id", "CPU implementer"),
            family: of("cpu family", "CPU architecture"),
            model: of("model", "CPU part"),
            stepping: variant + &of("stepping", "CPU revision"),
            microcode: of("microcode", ""),
            hypervisor: if is_virtual { "unnamed".to_owned() } else { String::new() },
            features: flags.split(' ').filter(|flag| is_in(FEATURES, flag)).map(str::to_owned).collect(),
            ..Machine::default()
        }
    }

    /// Model and what it is best known by, for a line of a table.
    pub fn short(&self) -> String {
        let features = NOTABLE.split(' ').filter(|name| self.features.contains(*name)).map(str::to_owned);
        let words = [self.name.clone(), self.numbers()].into_iter().chain(features).chain([self.variables()]);
        words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }

    /// Family, model and stepping.
    fn numbers(&self) -> String {
        [&self.family[..], &self.model, &self.stepping].join("/").trim_matches('/').to_owned()
    }

    fn variables(&self) -> String {
        let all = self.environment.iter().flatten().map(|(name, value)| format!("{name}={value}"));
        all.collect::<Vec<_>>().join(" ")
    }

    /// All but the features, by name: what is surely of another CPU, or another use of it, first ([`OF_CPU`]).
    pub fn facts(&self) -> [(&'static str, String); 9] {
        let mitigations = self.mitigations.iter().map(|(name, state)| format!("{name} {state}"));
        [
            ("CPU", format!("{} {} {}", self.name, self.vendor, self.numbers()).trim().to_owned()),
            ("variables of the server", self.variables()),
            ("microcode", self.microcode.clone()),
            ("hypervisor", self.hypervisor.clone()),
            ("caches", self.caches.join(", ")),
            ("CPUs on one core", Vec::from_iter(self.siblings.clone()).join(" ")),
            ("mitigations", mitigations.collect::<Vec<_>>().join("; ")),
            ("control groups", self.control_groups.clone()),
            ("clock source", self.clock_source.clone()),
        ]
    }

    /// What cryptography gets from the CPU's features; empty: they are not known.
    pub fn meanings(&self) -> Vec<&'static str> {
        let has = |names: &[&str]| names.iter().all(|name| self.features.contains(*name));
        let rsa = match () {
            () if has(&["avx512ifma", "avx512vl"]) => "RSA-2048 takes about half, by AVX-512 IFMA",
            () if has(&["avx_ifma"]) => "RSA may take less, by AVX-IFMA (newer OpenSSL)",
            () if has(&["adx", "bmi2"]) => "RSA by ADX and BMI2; with AVX-512 IFMA it would take about half",
            () => "RSA by plain multiplication",
        };
        let gcm = match () {
            () if has(&["vaes", "vpclmulqdq"]) => "AES-GCM of large records about twice as fast, by VAES",
            () if has(&["aes", "pclmulqdq"]) || has(&["aes", "pmull"]) => "AES-GCM in hardware",
            () => "AES-GCM in software: ChaCha20-Poly1305 costs less",
        };
        let has_sha = has(&["sha_ni"]) || has(&["sha2"]);
        let sha = if has_sha { "SHA-256 in hardware" } else { "SHA-256 in software" };
        if self.features.is_empty() { Vec::new() } else { vec![rsa, gcm, sha] }
    }
}

fn is_in(names: &str, name: &str) -> bool {
    names.split(' ').any(|one| one == name)
}

/// Variables of a server that change what cryptography costs.
pub fn telling(variables: impl IntoIterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let tells = |name: &str| is_in(VARIABLES, name) || name.starts_with(VARIABLES_OF_NSS);
    variables.into_iter().filter(|(name, _)| tells(name)).collect()
}

/// Two machines on which the same work costs another time, or of which that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{what}, so that times of both are not comparable: compare ratios within each run, or measure both on one machine, \
     in turns"
)]
pub struct Unlike {
    /// It is known that their CPUs differ, or what is used of these.
    pub is_known: bool,
    what: String,
}

/// In what two machines differ; `None`: in nothing that is known to change costs.
pub fn unlike(first: Option<&Machine>, second: Option<&Machine>) -> Option<Unlike> {
    let (Some(a), Some(b)) = (first, second) else {
        let what = "a record does not say what the CPU of its server can do".to_owned();
        return Some(Unlike { is_known: false, what });
    };
    let only = |which: &str, more: Vec<&String>| {
        let more = more.into_iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        (!more.is_empty()).then(|| format!("only the {which} has {more}"))
    };
    let [of_first, of_second] = [a.features.difference(&b.features), b.features.difference(&a.features)];
    let features = [only("first", of_first.collect()), only("second", of_second.collect())];
    let told = |text: &str| if text.is_empty() { "none".to_owned() } else { text.to_owned() };
    let facts = a.facts().into_iter().zip(b.facts());
    let facts: Vec<_> =
        facts.map(|((name, a), (_, b))| (a != b).then(|| format!("{name}: {}, then {}", told(&a), told(&b)))).collect();
    let is_known = features.iter().chain(&facts[..OF_CPU]).any(Option::is_some);
    let all: Vec<String> = features.into_iter().chain(facts).flatten().collect();
    let what = format!("the machines differ ({})", all.join("; "));
    (!all.is_empty()).then_some(Unlike { is_known, what })
}

#[cfg(test)]
mod tests {
    use super::*;

    const X86: &str = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\nmodel name\t: \
        AMD EPYC\nstepping\t: 1\nmicrocode\t: 0x1000065\ncache size\t: 1\nflags\t\t: fpu avx512f adx avx512ifma aes \
        hypervisor vaes avx512vl\nbugs\t\t: sysret\n\nprocessor\t: 1\nvendor_id\t: other\n";
    const AARCH64: &str = "processor\t: 0\nBogoMIPS\t: 243.75\nFeatures\t: fp asimd aes pmull sha1 sha2\n\
        CPU implementer\t: 0x41\nCPU architecture: 8\nCPU variant\t: 0x3\nCPU part\t: 0xd0c\nCPU revision\t: 1\n\n";

    #[test]
    fn cpuinfo_of_both_architectures_is_read() {
        let amd = Machine::of_cpuinfo(X86);
        assert_eq!([&amd.vendor[..], &amd.microcode, &amd.hypervisor], ["AuthenticAMD", "0x1000065", "unnamed"]);
        assert_eq!(Vec::from_iter(&amd.features), ["adx", "aes", "avx512f", "avx512ifma", "avx512vl", "vaes"]);
        assert_eq!(amd.short(), "AMD EPYC 26/2/1 avx512ifma vaes adx aes");
        assert!(amd.meanings()[0].contains("about half") && amd.meanings()[1].contains("in software"));
        let arm = Machine::of_cpuinfo(AARCH64);
        assert_eq!([&arm.vendor[..], &arm.numbers(), &arm.hypervisor], ["0x41", "8/0xd0c/0x3.1", ""]);
        assert_eq!(arm.meanings(), ["RSA by plain multiplication", "AES-GCM in hardware", "SHA-256 in hardware"]);
        assert_eq!((arm.features.len(), Machine::of_cpuinfo("").meanings().len()), (5, 0));
    }

    #[test]
    fn machines_are_alike_where_nothing_that_costs_differs() {
        let amd = Machine::of_cpuinfo(X86);
        let told = |a: &Machine, b: &Machine| unlike(Some(a), Some(b)).map(|of| (of.is_known, of.to_string()));
        assert_eq!(told(&amd, &amd), None);
        let plain = Machine::of_cpuinfo(&X86.replace(" avx512ifma", ""));
        let (is_known, text) = told(&plain, &amd).unwrap();
        assert!(is_known && text.contains("(only the second has avx512ifma)") && text.contains("in turns"), "{text}");
        let masked =
            |mask: &str| telling([("OPENSSL_ia32cap", mask), ("HOME", "/root")].map(|(a, b)| (a.into(), b.into())));
        let masked = Machine { environment: Some(masked(":~0x200000")), ..amd.clone() };
        let (is_known, text) = told(&amd, &masked).unwrap();
        assert!(is_known && text.contains("none, then OPENSSL_ia32cap=:~0x200000") && !text.contains("HOME"), "{text}");
        let untold = Machine { environment: Some(BTreeMap::new()), ..amd.clone() };
        assert_eq!(told(&amd, &untold), None, "of a server that nobody looked into no variables are known");
        let other_kernel = Machine { mitigations: [("srso".into(), "Vulnerable".into())].into(), ..amd.clone() };
        assert!(!told(&amd, &other_kernel).unwrap().0);
    }

    #[test]
    fn a_machine_that_is_not_known_is_like_no_other() {
        let known = Machine::of_cpuinfo(X86);
        for (first, second) in [(None, None), (Some(&known), None), (None, Some(&known))] {
            assert!(
                unlike(first, second)
                    .is_some_and(|of| !of.is_known && of.to_string().contains("a record does not say"))
            );
        }
    }

    #[test]
    fn this_machine_is_read() {
        let here = Machine::here();
        assert!(here.numbers().contains('/') && !here.clock_source.is_empty(), "{here:?}");
        let text = serde_json::to_string(&here).unwrap();
        assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), here);
    }
}
