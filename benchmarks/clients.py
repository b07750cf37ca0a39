"""One client as a process of its own: `python clients.py WHO FOLDER`.

It reads the bucket `BUCKET` of the store in the usual AWS variables, or the repository `REPOSITORY`
of the hub at `HF_ENDPOINT`, into the folder, and prints what the transfer took, imports left out,
as JSON: `seconds`, and user and system time as `cpu_seconds`.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import obstore
from botocore.config import Config
from huggingface_hub import snapshot_download
from obstore.store import S3Store

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests"))

from fakes.source_world import FakeKeyedData, make_hub_sources, make_version
from modelcache_agent.decide.granting import make_contents
from modelcache_agent.fetch import FetchEngine, FetchFile, FetchJob
from modelcache_api.manifest import SourceFile, SourceManifest, make_source_manifest
from modelcache_api.wire import GrantedFile

UID = "benchmark"
URL_SECONDS = 3600
BLOCK = 8 << 20


@dataclass(frozen=True)
class Took:
    """One transfer, start and imports of the process left out."""

    seconds: float
    cpu_seconds: float


def command(who: str, folder: Path) -> tuple[str, ...]:
    """What starts the client."""
    return (sys.executable, __file__, who, str(folder))


def run(who: str, folder: Path, environment: Mapping[str, str]) -> Took:
    """Run the client to its end."""
    answer = subprocess.run(
        command(who, folder), env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return Took(**json.loads(answer.stdout.splitlines()[-1]))


def ours(folder: Path) -> Callable[[], None]:
    """The agent's engine, with signed URLs of the bucket."""
    client, bucket = s3_client(), os.environ["BUCKET"]
    listed = client.list_objects_v2(Bucket=bucket)["Contents"]
    manifest = make_source_manifest(
        SourceFile(found["Key"], found["Size"], found["ETag"]) for found in listed
    )
    granted = {
        file.path: GrantedFile(
            path=file.path,
            size_bytes=file.size_bytes,
            etag=file.etag,
            url=client.generate_presigned_url(
                "get_object", {"Bucket": bucket, "Key": file.path}, URL_SECONDS
            ),
            expires_at=time.time() + URL_SECONDS,
        )
        for file in manifest.files
    }
    return lambda: asyncio.run(fetch(folder, manifest, granted))


def ours_from_hub(folder: Path) -> Callable[[], None]:
    """The operator's listing and signing of `hf://`, then the agent's engine."""
    sources = make_hub_sources(FakeKeyedData())
    uri = f"hf://{os.environ['REPOSITORY']}"
    version = make_version(uri, endpoint=os.environ["HF_ENDPOINT"], uid=UID)

    async def work() -> None:
        manifest = await sources.resolve(version)
        page = await sources.sign(version, manifest.files, manifest.revision)
        granted = {
            file.path: GrantedFile(
                path=file.path,
                size_bytes=file.size_bytes,
                version_id=file.version_id,
                url=signed.url or "",
                expires_at=signed.expires_at,
                sha256=file.sha256,
            )
            for file, signed in zip(manifest.files, page.files, strict=True)
        }
        await fetch(folder, manifest, granted)
        await sources.close()

    return lambda: asyncio.run(work())


async def fetch(folder: Path, manifest: SourceManifest, granted: Mapping[str, GrantedFile]) -> None:
    """Fetch what the manifest lists; the files get their names when all are there."""

    class Grants:
        async def current(self, uid: str, path: str) -> GrantedFile:
            del uid
            return granted[path]

        refresh = current

    known = make_contents(granted.values())
    files = tuple(FetchFile(file, known.get(file.path)) for file in manifest.files)
    job = FetchJob(UID, manifest.digest, files, folder / ".partial")
    async with FetchEngine(Grants()) as engine:
        outcome = await engine.fetch(job)
    if outcome.failure is not None:
        raise SystemExit(outcome.failure.message)
    for file in outcome.files:
        file.partial_path.rename(folder / file.path)


def huggingface_hub(folder: Path) -> Callable[[], None]:
    """`snapshot_download` with its defaults, eight files at once."""

    def work() -> None:
        snapshot_download(os.environ["REPOSITORY"], local_dir=folder, token=False)
        sync(folder)

    return work


def boto3_transfer(folder: Path) -> Callable[[], None]:
    """`download_file` with its defaults, a file after the other."""
    client, bucket = s3_client(), os.environ["BUCKET"]

    def work() -> None:
        for key in keys(client, bucket):
            client.download_file(bucket, key, str(folder / key))
        sync(folder)

    return work


def obstore_stream(folder: Path) -> Callable[[], None]:
    """One stream for each file, all files at once."""
    client, bucket = s3_client(), os.environ["BUCKET"]
    options: Any = {"allow_http": True}
    store = S3Store(bucket, client_options=options, virtual_hosted_style_request=False)

    def one(key: str) -> None:
        with (folder / key).open("wb", buffering=0) as file:
            for chunk in obstore.get(store, key).stream(min_chunk_size=BLOCK):
                file.write(chunk)

    def work() -> None:
        with ThreadPoolExecutor() as pool:
            list(pool.map(one, keys(client, bucket)))
        sync(folder)

    return work


def s5cmd(folder: Path) -> Callable[[], None]:
    """Its defaults: 256 workers over all files, five parts of 50 MiB a file."""
    source = f"s3://{os.environ['BUCKET']}/*"
    endpoint = f"--endpoint-url={os.environ['AWS_ENDPOINT_URL']}"
    return program(folder, "s5cmd", endpoint, "--log=error", "cp", source)


def rclone(folder: Path) -> Callable[[], None]:
    """Its defaults, four files at once."""
    endpoint = os.environ["AWS_ENDPOINT_URL"]
    remote = f":s3,provider=SeaweedFS,env_auth=true,endpoint='{endpoint}':{os.environ['BUCKET']}"
    return program(folder, "rclone", "copy", "--config=", remote)


CLIENTS: Mapping[str, Callable[[Path], Callable[[], None]]] = {
    "ours": ours,
    "ours from the hub": ours_from_hub,
    "huggingface_hub": huggingface_hub,
    "boto3": boto3_transfer,
    "obstore": obstore_stream,
    "s5cmd": s5cmd,
    "rclone": rclone,
}


def program(folder: Path, name: str, *arguments: str) -> Callable[[], None]:
    binary = Path(sys.executable).with_name(name)

    def work() -> None:
        subprocess.run((binary, *arguments, f"{folder}/"), check=True, stdout=subprocess.DEVNULL)
        sync(folder)

    return work


def s3_client() -> Any:
    config = Config(signature_version="s3v4", s3={"addressing_style": "path"})
    return boto3.client("s3", config=config)


def keys(client: Any, bucket: str) -> Iterable[str]:
    return [found["Key"] for found in client.list_objects_v2(Bucket=bucket)["Contents"]]


def sync(folder: Path) -> None:
    """Flush every file that was written, as ours does."""
    for file in folder.rglob("*"):
        if file.is_file():
            fd = os.open(file, os.O_RDONLY)
            os.fsync(fd)
            os.close(fd)


def cpu_seconds() -> float:
    """User and system time of this process and of the children that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    who, folder = sys.argv[1:]
    work = CLIENTS[who](Path(folder))
    began, cpu = time.perf_counter(), cpu_seconds()
    work()
    took = {"seconds": time.perf_counter() - began, "cpu_seconds": cpu_seconds() - cpu}
    print(json.dumps(took))


if __name__ == "__main__":
    main()
