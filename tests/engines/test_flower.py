"""A true SuperLink over TLS, with a SuperNode for each site."""

import datetime
import ipaddress
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open

pytest.importorskip("flwr")

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from heterofactor import HMF
from heterofactor.datasets import make_heterogeneous
from heterofactor.engines.flower import configured_site, write_app
from heterofactor.federation import Quorum
from heterofactor.files import load

# A round takes ten to thirty seconds, and there are some fifteen.
PATIENCE = 900.0
BIN = Path(sys.executable).parent


def certificates(folder: Path) -> None:
    """Make an authority, and a certificate of this machine that it has signed."""
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("CA", "localhost")
    ]
    now = datetime.datetime.now(datetime.UTC)
    for key, name, path in zip(keys, names, ("ca", "server"), strict=True):
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(names[0])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=1))
        )
        if path == "ca":
            made = made.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        else:
            address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            here = [x509.DNSName("localhost"), address]
            made = made.add_extension(x509.SubjectAlternativeName(here), critical=False)
        signed = made.sign(keys[0], hashes.SHA256())
        (folder / f"{path}.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        (folder / f"{path}.key").write_bytes(secret)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(folder: Path, name: str, *command: str) -> Iterator[None]:
    """Run one of Flower's programs, with a home and a log of its own."""
    home = folder / f"home-{name}"
    home.mkdir()
    with (folder / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(
            [str(BIN / command[0]), *command[1:]],
            stdout=log,
            stderr=log,
            env=environment(home),
            start_new_session=True,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def environment(home: Path) -> dict[str, str]:
    path = f"{BIN}{os.pathsep}{os.environ['PATH']}"
    return os.environ | {"FLWR_HOME": str(home), "FLWR_TELEMETRY_ENABLED": "0", "PATH": path}


@pytest.mark.slow
def test_sites_over_tls_come_to_the_answer_of_one_machine(tmp_path: Path) -> None:
    data = make_heterogeneous(3, 60, 40, 2, 1, noise=0.1, random_state=0).sources
    certificates(tmp_path)
    (tmp_path / "other").mkdir()
    certificates(tmp_path / "other")
    out, app, port = tmp_path / "shared.safetensors", tmp_path / "app", free_port()
    app.mkdir()
    quorum = Quorum(timeout=120.0)
    model: dict[str, Any] = {"n_shared": 2, "n_unique": 1}
    write_app(app, model, list(data), out, quorum=quorum, secure=False)
    link = [
        *("flower-superlink", "--ssl-certfile", str(tmp_path / "server.pem")),
        *("--ssl-keyfile", str(tmp_path / "server.key")),
        *("--ssl-ca-certfile", str(tmp_path / "ca.pem"), "--host", "127.0.0.1"),
        *("--port", str(port), "--disable-runtime-dependency-installation"),
    ]
    with ExitStack() as stack:
        stack.enter_context(running(tmp_path, "link", *link))
        time.sleep(10)
        for name, X in [*data.items(), ("stranger", np.eye(40))]:
            folder = tmp_path / name
            folder.mkdir()
            np.save(folder / f"{name}.npy", X)
            settings = {"name": name, "data": folder / f"{name}.npy", "folder": folder}
            written = " ".join(f'{key}="{value}"' for key, value in settings.items())
            trusts = tmp_path / "other" if name == "stranger" else tmp_path
            node = [
                *("flower-supernode", "--root-certificates", str(trusts / "ca.pem")),
                *("--superlink", f"localhost:{port}", "--port", str(free_port())),
                *("--node-config", written),
            ]
            stack.enter_context(running(tmp_path, name, *node))
        home = tmp_path / "home-run"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "here"\n[superlink.here]\naddress = "127.0.0.1:{port}"\n'
            f'root-certificates = "{tmp_path / "ca.pem"}"\n'
        )
        run = [str(BIN / "flwr"), "run", str(app), "here"]
        subprocess.run(run, check=True, env=environment(home), timeout=120)
        end = time.monotonic() + PATIENCE
        while not out.exists() and time.monotonic() < end:
            time.sleep(2)
    assert out.exists(), (tmp_path / "link.log").read_text()[-3000:]
    with safe_open(out, framework="numpy") as file:
        shared = file.get_tensor("shared_components")
        told = json.loads(file.metadata()["heterofactor"])
    expected = HMF(2, 1).fit(data).shared_components_
    np.testing.assert_allclose(shared.T @ shared, expected.T @ expected, atol=1e-8)
    assert told["converged"]
    assert told["sites"] == list(data)
    assert load(tmp_path / "source1" / "source1.safetensors").source_names_ == ["source1"]
    # who trusts another authority does not speak with this server
    assert "CERTIFICATE_VERIFY_FAILED" in (tmp_path / "stranger.log").read_text().upper()


def test_a_site_without_its_settings_says_which(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no 'data'"):
        configured_site({"name": "north", "folder": str(tmp_path)})
