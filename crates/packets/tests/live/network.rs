//! Two network namespaces and a cable.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use tlsdyno_base::namespace::Namespace;

pub const ADDRESS: &str = "10.99.0.1";

pub struct Network {
    near: String,
    far: String,
}

impl Network {
    /// `offloads`: `on` where segments may pass in large packets, else `off`. `frame`: most bytes of a packet then.
    /// Nothing where there are no namespaces.
    pub fn new(offloads: &str, frame: usize) -> Option<Network> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if Namespace::create().is_err() {
            println!("no network namespaces without root: not tried");
            return None;
        }
        let id = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let network = Network { near: format!("dyno-top-near-{id}"), far: format!("dyno-top-far-{id}") };
        let (near, far) = (&network.near, &network.far);
        run(&format!(
            "ip netns add {near}; ip netns add {far}
            ip -n {near} link add cable mtu {frame} type veth peer name cable mtu {frame} netns {far}
            ip -n {near} address add {ADDRESS}/24 dev cable; ip -n {far} address add 10.99.0.2/24 dev cable
            for end in {near} {far}; do
                ip -n $end link set lo up; ip -n $end link set cable up
                ip netns exec $end ethtool -K cable gso {offloads} gro {offloads} tso {offloads} >/dev/null
            done"
        ));
        Some(network)
    }

    /// From now on one packet of so many is lost, in each direction, behind the capture at the near end and before it,
    /// by chance. Whether that can be: it takes the program nft.
    pub fn loses_one_in(&self, packets: u32) -> bool {
        let rule = |hook: &str| {
            format!(
                "add chain ip lossy {hook} {{ type filter hook {hook} priority 0; }}\n\
                 add rule ip lossy {hook} meta iifname != lo meta oifname != lo numgen random mod {packets} 0 drop\n"
            )
        };
        let script = format!("add table ip lossy\n{}{}", rule("input"), rule("output"));
        [&self.near, &self.far].into_iter().all(|end| {
            let nft = Command::new("ip").args(["netns", "exec", end, "nft", &script]).output();
            nft.is_ok_and(|output| output.status.success())
        })
    }

    pub fn near(&self) -> Namespace {
        namespace(&self.near)
    }

    pub fn far(&self) -> Namespace {
        namespace(&self.far)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in [&self.near, &self.far] {
            let _ = Command::new("ip").args(["netns", "delete", name]).output();
        }
    }
}

fn namespace(name: &str) -> Namespace {
    Namespace::open(format!("/run/netns/{name}").as_ref()).unwrap()
}

fn run(script: &str) {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
