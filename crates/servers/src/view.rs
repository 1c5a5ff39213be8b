//! What a server sees of the file system, in a mount namespace of its own, mount_namespaces(7): everything as it is,
//! but what it may not write is read-only, or writes to it go to a layer that ends with the server.
//!
//! A read-only mount costs nothing when files are read. A layer (overlayfs) does, some microseconds for each file that
//! is opened; so directories of documents are never below one. The namespace is that of the server alone: supervisor
//! and tlsdyno stay outside.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_change, move_mount, open_tree,
};
use serde::{Deserialize, Serialize};
use tlsdyno_sys as sys;

/// Directories of the root that get no layer: the system itself, and what the kernel makes.
const WITHOUT_LAYER: [&str; 14] =
    ["bin", "boot", "dev", "lib", "lib32", "lib64", "libx32", "lost+found", "nix", "proc", "sbin", "srv", "sys", "usr"];
const DOCUMENTS: [&str; 1] = ["/var/www"];
/// The directory of layers in a server's private directory.
const LAYERS: &str = "layers";

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct View {
    /// Directories that it writes for real.
    pub writable: Vec<PathBuf>,
    /// Writes elsewhere, but to directories of the system and of documents, go to a layer; without it they are refused.
    pub layered: bool,
    /// Directories of documents, which are not below a layer.
    pub documents: Vec<PathBuf>,
    /// Files that are seen, each in the place of another: `/dev/null` in that of a socket that is not to be seen.
    pub shown: Vec<(PathBuf, PathBuf)>,
}

impl View {
    /// Gives this process the view, for whatever it becomes. `scratch`: the server's private directory.
    pub fn enter(&self, scratch: &Path) -> Result<()> {
        sys::unshare_mount_namespace().context("make a mount namespace for the server")?;
        let propagation = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
        mount_change("/", propagation).context("keep mounts of the server to itself")?;
        let kept = [scratch, Path::new("/proc")].into_iter().chain(self.writable.iter().map(PathBuf::as_path));
        let kept = kept.map(Tree::open).collect::<Result<Vec<_>>>()?;
        let bare = if self.layered { self.bare(&kept)? } else { Vec::new() };
        let layers = scratch.join(LAYERS);
        if self.layered {
            fs::create_dir_all(&layers).with_context(|| format!("make {}", layers.display()))?;
        }
        let root = rustix::fs::open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).context("open /")?;
        sys::make_mounts_read_only(&root).context("make the server's view read-only")?;
        if Path::new("/dev/shm").is_dir() {
            mount("tmpfs", "/dev/shm", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, Some(c"mode=1777"))
                .context("mount shared memory of the server's own")?;
        }
        if self.layered {
            lay_over(&layers)?;
        }
        for tree in &bare {
            sys::make_mounts_read_only(&tree.mount).with_context(|| format!("hold {}", tree.path.display()))?;
            tree.put_back()?;
        }
        kept.iter().try_for_each(Tree::put_back)?;
        let is_kept = |place: &Path| kept.iter().any(|tree| place.starts_with(&tree.path));
        let mut shown = self.shown.iter().filter(|(_, place)| !is_kept(place));
        shown.try_for_each(|(own, place)| Tree { path: place.clone(), ..Tree::open(own)? }.put_back())
    }

    /// What lies below layers and is seen as it is: documents, other file systems, and sockets, to which nobody
    /// can connect through a layer. Parents before children.
    fn bare(&self, kept: &[Tree]) -> Result<Vec<Tree>> {
        let documents = DOCUMENTS.iter().map(PathBuf::from).chain(self.documents.iter().cloned());
        let documents = documents.filter_map(|path| path.canonicalize().ok());
        let paths: BTreeSet<PathBuf> = documents.chain(mount_points()).chain(sockets()).collect();
        let mut bare: Vec<Tree> = Vec::new();
        for path in paths {
            let is_kept = kept.iter().any(|tree| path.starts_with(&tree.path));
            if has_layer(&path) && !is_kept && !bare.iter().any(|tree| path.starts_with(&tree.path)) {
                match Tree::open(&path) {
                    // Another program's socket, which it has removed meanwhile.
                    Err(_) if !path.exists() => {}
                    tree => bare.push(tree?),
                }
            }
        }
        Ok(bare)
    }
}

/// A part of the file system with what is mounted in it, as it is now.
struct Tree {
    path: PathBuf,
    is_directory: bool,
    mount: OwnedFd,
}

impl Tree {
    fn open(path: &Path) -> Result<Tree> {
        let path = path.canonicalize().with_context(|| format!("find {}", path.display()))?;
        let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let mount = open_tree(CWD, &path, flags).with_context(|| format!("keep {} as it is", path.display()))?;
        Ok(Tree { is_directory: path.is_dir(), path, mount })
    }

    fn put_back(&self) -> Result<()> {
        // A directory is gone only where something else was mounted over it.
        if self.is_directory && !self.path.exists() {
            fs::create_dir_all(&self.path).with_context(|| format!("make {}", self.path.display()))?;
        }
        match move_mount(&self.mount, "", CWD, &self.path, MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH) {
            // Another program's socket, which it has removed meanwhile: a layer may show it for a while.
            Err(error) if !self.is_directory && (error == rustix::io::Errno::NOENT || !self.path.exists()) => Ok(()),
            shown => shown.with_context(|| format!("show {}", self.path.display())),
        }
    }
}

/// Whether a path is below a directory that gets a layer.
fn has_layer(path: &Path) -> bool {
    path.components().nth(2).is_some() && layered_directories().iter().any(|directory| path.starts_with(directory))
}

/// Directories of the root, but those of the system.
fn layered_directories() -> Vec<PathBuf> {
    let entries = fs::read_dir("/").into_iter().flatten().flatten();
    let is_directory = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_dir());
    let is_ours = |name: &str| !WITHOUT_LAYER.contains(&name) && !name.contains([',', ':', '\\']);
    let named = entries.filter(is_directory).filter(|entry| entry.file_name().to_str().is_some_and(is_ours));
    named.map(|entry| entry.path()).collect()
}

/// Puts a layer over each directory that gets one. What is written goes to memory, and is gone with the namespace.
fn lay_over(layers: &Path) -> Result<()> {
    mount("tmpfs", layers, "tmpfs", MountFlags::NODEV, Some(c"mode=755")).context("mount room for layers")?;
    // Relative names: options cannot hold every character.
    std::env::set_current_dir(layers).context("enter the room for layers")?;
    for (number, directory) in layered_directories().iter().enumerate() {
        let metadata = fs::metadata(directory).with_context(|| format!("look at {}", directory.display()))?;
        let (upper, work) = (format!("{number}-upper"), format!("{number}-work"));
        fs::create_dir(&upper).and_then(|()| fs::create_dir(&work)).context("make a layer")?;
        let mode = fs::Permissions::from_mode(metadata.mode() & 0o7777);
        std::os::unix::fs::chown(&upper, Some(metadata.uid()), Some(metadata.gid()))
            .and_then(|()| fs::set_permissions(&upper, mode))
            .context("make a layer")?;
        let options = format!("lowerdir={},upperdir={upper},workdir={work}", directory.display());
        let options = std::ffi::CString::new(options).context("name a layer")?;
        mount("overlay", directory, "overlay", MountFlags::empty(), Some(options.as_c_str()))
            .with_context(|| format!("lay a layer over {}", directory.display()))?;
    }
    std::env::set_current_dir("/").context("leave the room for layers")
}

fn mount_points() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    // proc_pid_mountinfo(5): the fifth field, blanks as octal numbers.
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).filter(|point| !point.contains('\\'));
    points.map(PathBuf::from).filter(|path| path.exists()).collect()
}

/// Sockets in the file system that somebody listens on, unix(7).
pub(super) fn sockets() -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/thread-self/net/unix").unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split_ascii_whitespace().nth(7)).map(PathBuf::from);
    names.filter(|path| path.is_absolute() && path.exists()).filter_map(|path| path.canonicalize().ok()).collect()
}
