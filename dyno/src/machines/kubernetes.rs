//! Workers by Kubernetes: an Indexed Job with a Secret, made and removed by kubectl.

use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::launch::Order;
use super::token::Token;

/// What the Job runs.
#[derive(Clone, Copy, Debug)]
pub struct Pods<'a> {
    /// Name of Job and Secret.
    pub name: &'a str,
    /// An image with `tlsdyno` as its entry point.
    pub image: &'a str,
    /// Where the coordinator listens.
    pub address: &'a str,
    /// How many pods.
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

impl Pods<'_> {
    /// The manifest: kubectl takes JSON as it takes YAML. Without a token, which is made for each run, there is a word
    /// in its place.
    pub fn manifest(&self, token: Option<&Token>) -> Value {
        let labels = json!({"app.kubernetes.io/name": "tlsdyno", "tlsdyno/load": self.name});
        let mut arguments = vec!["worker", "--join", self.address, "--token-file", "/run/tlsdyno/token"];
        arguments.extend(self.arguments.iter().map(String::as_str));
        let text = token.map_or_else(|| "made for each run".to_owned(), Token::text);
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": self.name, "labels": labels},
            "type": "Opaque",
            "stringData": {"token": text},
        });
        let container = json!({
            "name": "worker",
            "image": self.image,
            "args": arguments,
            "volumeMounts": [{"name": "token", "mountPath": "/run/tlsdyno", "readOnly": true}],
            "securityContext": {
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "readOnlyRootFilesystem": true,
            },
        });
        let pod = json!({
            "restartPolicy": "Never",
            "automountServiceAccountToken": false,
            "containers": [container],
            // The token file is for its owner only; the owner of a mounted Secret is root.
            "securityContext": {"runAsUser": 0},
            "volumes": [{"name": "token", "secret": {"secretName": self.name, "defaultMode": 0o400}}],
        });
        let job = json!({
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self.name, "labels": labels},
            "spec": {
                "completionMode": "Indexed",
                "completions": self.workers,
                "parallelism": self.workers,
                // A worker that was lost does not come back into a load that has begun.
                "backoffLimit": 0,
                "ttlSecondsAfterFinished": 600,
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        });
        json!({"apiVersion": "v1", "kind": "List", "items": [secret, job]})
    }

    /// The command that makes them, and the one that removes them.
    pub fn order(&self, token: &Token) -> Order {
        let words = ["kubectl", "create", "-f", "-"].map(str::to_owned).to_vec();
        let undo = ["kubectl", "delete", "--ignore-not-found", "--wait=false", "--request-timeout=4s", "job,secret"];
        let input = self.manifest(Some(token)).to_string().into_bytes();
        Order { words, input, undo: undo.into_iter().chain([self.name]).map(str::to_owned).collect() }
    }

    /// Why a pod cannot start, if one cannot: an image that is not to be had, and the like.
    pub fn hopeless(&self) -> Option<String> {
        let selector = format!("tlsdyno/load={}", self.name);
        let mut kubectl = Command::new("kubectl");
        // Workers that hear nothing for 5 s end.
        let kubectl = kubectl.args(["get", "pods", "--request-timeout=2s", "-o", "json", "-l", &selector]);
        let output = kubectl.stdin(Stdio::null()).output().ok()?;
        hopeless(&serde_json::from_slice(&output.stdout).ok()?)
    }
}

/// The same of kubectl's answer.
fn hopeless(pods: &Value) -> Option<String> {
    pods["items"].as_array()?.iter().find_map(|pod| {
        pod["status"]["containerStatuses"].as_array()?.iter().find_map(|container| {
            let waiting = &container["state"]["waiting"];
            let reason = waiting["reason"].as_str().filter(|reason| HOPELESS.contains(reason))?;
            let name = pod["metadata"]["name"].as_str().unwrap_or("a pod");
            Some(format!("{name} cannot start: {reason}: {}", waiting["message"].as_str().unwrap_or_default()))
        })
    })
}
