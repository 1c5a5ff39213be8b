//! Workers by Kubernetes: an Indexed Job with a Secret, made and removed by kubectl.

use std::fs::File;
use std::io::{Read, Seek};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tlsdyno_base::foreign::visible;

use super::launch::Order;
use super::token::Token;

/// How often Kubernetes is asked whether its pods can start.
const ASKED: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, Debug)]
pub struct Pods<'a> {
    pub name: &'a str,
    /// An image with `tlsdyno` as its entry point.
    pub image: &'a str,
    pub address: &'a str,
    pub workers: usize,
    /// What comes behind `tlsdyno worker`.
    pub arguments: &'a [String],
}

/// What is wrong with a container that will not start by itself.
const HOPELESS: [&str; 6] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "CreateContainerConfigError",
    "CreateContainerError",
];

/// What kubectl is given, with names in angle brackets in place of values. A worker that was lost does not come back
/// into a load that has begun, nor do the others end with it, as they would by a `backoffLimit` of 0. The user is root
/// because the token file is for its owner only, and the owner of a mounted Secret is root.
const MANIFEST: &str = include_str!("kubernetes.json");

impl Pods<'_> {
    /// The manifest: kubectl takes JSON as it takes YAML. Without a token, which is made for each run, there is a word
    /// in its place.
    pub fn manifest(&self, token: Option<&Token>) -> Value {
        let mut arguments = vec!["worker", "--join", self.address, "--token-file", "/run/tlsdyno/token"];
        arguments.extend(self.arguments.iter().map(String::as_str));
        let token = token.map_or_else(|| "made for each run".to_owned(), Token::text);
        // What is filled in first is in no other value's reach.
        let values = [
            ("token", json!(token)),
            ("name", json!(self.name)),
            ("image", json!(self.image)),
            ("arguments", json!(arguments)),
            ("workers", json!(self.workers)),
        ];
        let fill_in =
            |text: String, (name, value): &(&str, Value)| text.replace(&format!("\"<{name}>\""), &value.to_string());
        let manifest = values.iter().fold(MANIFEST.to_owned(), fill_in);
        serde_json::from_str(&manifest).expect("the manifest is JSON")
    }

    /// The command that makes them, and the one that removes them.
    pub fn order(&self, token: &Token) -> Order {
        let command = ["kubectl", "create", "-f", "-"].map(str::to_owned).to_vec();
        let undo = ["kubectl", "delete", "--ignore-not-found", "--wait=false", "--request-timeout=4s", "job,secret"];
        let input = self.manifest(Some(token)).to_string().into_bytes();
        Order { command, input, undo: undo.into_iter().chain([self.name]).map(str::to_owned).collect() }
    }

    /// Asks for the pods. The answer comes in the file when the command has ended.
    fn ask(&self) -> Option<(Child, File)> {
        let answer = tempfile::tempfile().ok()?;
        let selector = format!("tlsdyno/load={}", self.name);
        let mut kubectl = Command::new("kubectl");
        let kubectl = kubectl.args(["get", "pods", "--request-timeout=2s", "-o", "json", "-l", &selector]);
        let kubectl = kubectl.stdin(Stdio::null()).stdout(answer.try_clone().ok()?).stderr(Stdio::null());
        Some((kubectl.spawn().ok()?, answer))
    }
}

/// Asks again and again how pods are, and waits for no answer: where the cluster has none, kubectl takes five times as
/// long as it is told, and workers that hear nothing for 5 s end.
#[derive(Debug)]
pub struct Lookout<'a> {
    pods: &'a Pods<'a>,
    asked: Instant,
    asking: Option<(Child, File)>,
    /// What pods last waited for, as far as that is known: room, or somebody's consent.
    pub missing: Option<String>,
}

impl<'a> Lookout<'a> {
    pub fn new(pods: &'a Pods<'a>) -> Lookout<'a> {
        Lookout { pods, asked: Instant::now(), asking: None, missing: None }
    }

    /// Why not all workers will come, as far as that is known by now: an image that is not to be had, a worker that
    /// has ended, and the like.
    pub fn hopeless(&mut self) -> Option<String> {
        if let Some((child, _)) = &mut self.asking {
            child.try_wait().ok()??;
            let (_, mut answer) = self.asking.take()?;
            let mut text = Vec::new();
            answer.rewind().ok()?;
            answer.read_to_end(&mut text).ok()?;
            let answer = serde_json::from_slice(&text).ok()?;
            self.missing = missing(&answer, self.pods);
            return hopeless(&answer);
        }
        if self.asked.elapsed() > ASKED {
            self.asked = Instant::now();
            self.asking = self.pods.ask();
        }
        None
    }
}

impl Drop for Lookout<'_> {
    fn drop(&mut self) {
        if let Some((child, _)) = &mut self.asking {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn hopeless(pods: &Value) -> Option<String> {
    pods["items"].as_array()?.iter().find_map(|pod| {
        pod["status"]["containerStatuses"].as_array()?.iter().find_map(|container| {
            let state = &container["state"];
            let (what, why) = match state["terminated"]["exitCode"].as_i64() {
                Some(0) => return None,
                Some(code) => (format!("ended with code {code}"), &state["terminated"]),
                None => ("cannot start".to_owned(), &state["waiting"]),
            };
            let is_hopeless = |reason: &&str| why["exitCode"].is_i64() || HOPELESS.contains(reason);
            let reason = why["reason"].as_str().filter(is_hopeless)?;
            let name = pod["metadata"]["name"].as_str().unwrap_or("a pod");
            let message = why["message"].as_str().unwrap_or_default().trim();
            Some(visible(&format!("{name} {what}: {reason}: {message}")).into_owned())
        })
    })
}

/// Why pods have no node yet, or where it is said why they are not even made: events outlast their Job by an hour.
fn missing(pods: &Value, wanted: &Pods) -> Option<String> {
    let pods = pods["items"].as_array()?;
    if pods.len() < wanted.workers {
        let (made, all, name) = (pods.len(), wanted.workers, wanted.name);
        return Some(format!(
            "{made} of {all} pods were made; `kubectl get events --field-selector involvedObject.name={name}` says why"
        ));
    }
    pods.iter().find_map(|pod| {
        let conditions = pod["status"]["conditions"].as_array()?;
        let waits = |one: &&Value| one["type"] == "PodScheduled" && one["status"] == "False";
        let message = conditions.iter().find(waits)?["message"].as_str()?;
        Some(visible(&format!("{} has no node: {message}", pod["metadata"]["name"].as_str()?)).into_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pods(statuses: &[Value]) -> Value {
        let pod = |(index, status)| json!({"metadata": {"name": format!("pod-{index}")}, "status": status});
        json!({"items": statuses.iter().enumerate().map(pod).collect::<Vec<_>>()})
    }

    fn container(state: Value) -> Value {
        json!({"containerStatuses": [{"state": state}]})
    }

    #[test]
    fn a_container_that_cannot_start_or_has_failed_is_told_in_its_words() {
        let running = container(json!({"running": {}}));
        let reason = |state: Value| hopeless(&pods(&[running.clone(), json!({"phase": "Pending"}), container(state)]));
        let failed = json!({"terminated": {"exitCode": 4, "reason": "Error", "message": "no \u{1b}coordinator\n"}});
        assert_eq!(reason(failed).unwrap(), "pod-2 ended with code 4: Error: no \\u{1b}coordinator");
        let image = json!({"waiting": {"reason": "ErrImagePull", "message": "not found"}});
        assert_eq!(reason(image).unwrap(), "pod-2 cannot start: ErrImagePull: not found");
        assert_eq!(reason(json!({"waiting": {"reason": "ContainerCreating"}})), None);
        assert_eq!(reason(json!({"terminated": {"exitCode": 0, "reason": "Completed"}})), None);
    }

    #[test]
    fn pods_that_have_no_node_or_were_never_made_are_told() {
        let wanted = Pods { name: "load", image: "image", address: "192.0.2.1:7000", workers: 2, arguments: &[] };
        let condition = |status: &str| json!({"type": "PodScheduled", "status": status, "message": "no room"});
        let scheduled = |status: &str| json!({"conditions": [condition(status)]});
        let lack = |statuses: &[Value]| missing(&pods(statuses), &wanted);
        let full = lack(&[scheduled("True"), scheduled("False")]);
        assert_eq!(full.unwrap(), "pod-1 has no node: no room");
        assert!(lack(&[scheduled("True")]).unwrap().contains("1 of 2 pods were made"));
        assert_eq!(lack(&[scheduled("True"), scheduled("True")]), None);
    }
}
