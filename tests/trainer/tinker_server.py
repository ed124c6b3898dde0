"""A stand-in for a training service: it speaks the Tinker API over HTTP on loopback, with real torch on a toy model.

Nothing of it is the trainer's code: transformers computes whole rows, PEFT makes the LoRA, and torch.optim.AdamW the
update. Requests about a model run in the order of their numbers, results are fetched later, and checkpoints are in
memory.
`Fault` makes the next requests to a route fail as a service in trouble does.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import save
from tinker.proto import tinker_public_pb2 as proto
from transformers import AutoModelForCausalLM

KEY = "tml-stand-in-0123456789abcdef"
NAME = "org/tiny"
ALPHA = 8.0  # of every LoRA: the API has no field for it
ATTENTION, MLP = ["q_proj", "k_proj", "v_proj", "o_proj"], ["gate_proj", "up_proj", "down_proj"]


@dataclass
class Fault:
    """The next `times` requests to a route (an expression for a part of its path) are answered so.

    `status` None: as always, after `delay_s`.
    """

    route: str
    status: int | None
    body: Any = ""
    times: int = 1
    delay_s: float = 0.0
    headers: Mapping[str, str] = field(default_factory=dict)


class Model:
    """A LoRA on the toy base, with its optimizer."""

    def __init__(self, base: Path, rank: int, seed: int | None, mlp: bool, attn: bool, head: bool) -> None:
        self.rank, self.made_with = rank, (seed, mlp, attn, head)
        causal = AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager")
        targets = [*(ATTENTION if attn else []), *(MLP if mlp else []), *(["lm_head"] if head else [])]
        config = LoraConfig(r=rank, lora_alpha=ALPHA, target_modules=targets, lora_dropout=0.0, task_type="CAUSAL_LM")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed or 0)
            self.net: Any = get_peft_model(causal, config)
        self.trained = {name: p for name, p in self.net.named_parameters() if p.requires_grad}
        self.adam = torch.optim.AdamW(self.trained.values(), lr=1e-4)
        self.next, self.waiting = 1, {}  # type: ignore[var-annotated]

    def forward_backward(self, request: Any) -> bytes:
        """Cross-entropy with weights: the sum of −logprob · weight over all targets."""
        outputs, total = [], torch.zeros(())
        for one in request.data:
            ids = np.concatenate([np.frombuffer(part.encoded_text.tokens, np.int32) for part in one.model_input])
            targets = torch.from_numpy(np.frombuffer(one.loss_fn_inputs["target_tokens"].dense, np.int64).copy())
            weights = torch.from_numpy(np.frombuffer(one.loss_fn_inputs["weights"].dense, np.float32).copy())
            with torch.set_grad_enabled(not request.forward_only):
                logits = self.net(input_ids=torch.from_numpy(ids.astype(np.int64))[None]).logits[0].float()
                logprobs = torch.log_softmax(logits, -1).gather(-1, targets[:, None]).squeeze(-1)
                total = total - (logprobs * weights).sum()
            outputs.append(logprobs.detach().numpy())
        if not request.forward_only:
            torch.autograd.backward(total)
        offsets = np.cumsum([0, *(4 * len(one) for one in outputs)]).astype(np.int64)
        record = proto.ArrayRecord(num_datums=len(outputs))
        record.fields["logprobs"].CopyFrom(
            proto.BatchedTensor(
                dtype=proto.DTYPE_FLOAT32, offsets=offsets.tobytes(), data=np.concatenate(outputs).tobytes()
            )
        )
        reply = proto.ForwardBackwardOutput(loss_fn_output_type="ArrayRecord", loss_fn_outputs=[record])
        reply.metrics["loss:sum"] = float(total.detach())
        return bytes(reply.SerializeToString())

    def optim_step(self, adam: Mapping[str, float]) -> dict[str, Any]:
        """One update."""
        for group in self.adam.param_groups:
            group |= {
                "lr": adam["learning_rate"],
                "betas": (adam["beta1"], adam["beta2"]),
                "eps": adam["eps"],
                "weight_decay": adam["weight_decay"],
            }
        if adam["grad_clip_norm"] > 0:
            torch.nn.utils.clip_grad_norm_(self.trained.values(), adam["grad_clip_norm"])
        self.adam.step()
        self.adam.zero_grad(set_to_none=True)
        return {"metrics": {}}

    def saved(self) -> dict[str, Any]:
        """Weights and optimizer state."""
        weights = {name: p.detach().clone() for name, p in self.trained.items()}
        moments = {
            key: {name: one.clone() if isinstance(one, torch.Tensor) else one for name, one in value.items()}
            for key, value in self.adam.state_dict()["state"].items()
        }
        return {"weights": weights, "moments": moments, "rank": self.rank, "made_with": self.made_with}

    def load(self, state: Mapping[str, Any]) -> None:
        """Become a saved one."""
        with torch.no_grad():
            for name, parameter in self.trained.items():
                parameter.copy_(state["weights"][name])
        groups = self.adam.state_dict()["param_groups"]
        self.adam.load_state_dict({"state": state["moments"], "param_groups": groups})

    def files(self) -> dict[str, bytes]:
        """The adapter as files, under PEFT's names."""
        tensors = {name.replace(".default.", "."): p.detach().contiguous() for name, p in self.trained.items()}
        config = {"peft_type": "LORA", "r": self.rank, "lora_alpha": ALPHA, "target_modules": "all-linear"}
        return {"adapter_model.safetensors": save(tensors), "adapter_config.json": json.dumps(config).encode()}


class TinkerServer:
    """The stand-in. `requests`: of each request the route and the body; `faults` are used up from the front."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.name = NAME
        self.longest: int | None = 512
        self.requests: list[tuple[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.faults: list[Fault] = []
        self.models: dict[str, Model] = {}
        self.sessions: dict[str, str] = {}
        self.checkpoints: dict[str, Any] = {}
        self.exports: dict[str, dict[str, bytes]] = {}
        self.futures: dict[str, tuple[str, Any]] = {}
        self._lock = threading.RLock()
        self._numbers = iter(range(1, 10**6))
        handler = type("Handler", (_Handler,), {"service": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"

    @contextmanager
    def running(self) -> Iterator[TinkerServer]:
        """Within: it answers."""
        thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._http.shutdown()
            self._http.server_close()
            thread.join()

    def bodies(self, route: str) -> list[Any]:
        """The bodies of the requests to a route, in order."""
        return [body for path, body in self.requests if path == f"/api/v1/{route}"]

    def take_fault(self, path: str) -> Fault | None:
        """The fault for a request, if there is one."""
        with self._lock:
            for one in self.faults:
                if re.search(one.route, path):
                    one.times -= 1
                    if one.times <= 0:
                        self.faults.remove(one)
                    return one
        return None

    def answer(self, method: str, path: str, body: Any) -> Any:
        """The answer to a request: a JSON value, bytes of a protobuf, or (status, JSON value)."""
        with self._lock:
            self.requests.append((path, body))
            route = path.removeprefix("/api/v1/")
            if method == "DELETE" or route.startswith("training_runs/"):
                return self._checkpoint(method, route)
            if route.startswith("sessions/"):
                self.sessions.pop(route.split("/")[1], None)
                return {}
            found = getattr(self, f"_{route.replace('/', '_')}", None)
            return (404, {"detail": f"no route {path}"}) if found is None else found(body)

    def _client_config(self, _: Any) -> Any:
        return {}

    def _client_dynamic_config(self, _: Any) -> Any:
        return {}

    def _telemetry(self, _: Any) -> Any:
        return {"status": "accepted"}

    def _create_session(self, _: Any) -> Any:
        session = f"session-{next(self._numbers)}"
        self.sessions[session] = "open"
        return {"type": "create_session", "session_id": session}

    def _session_heartbeat(self, _: Any) -> Any:
        return {"type": "session_heartbeat"}

    def _get_server_capabilities(self, _: Any) -> Any:
        return {"supported_models": [{"model_name": self.name, "max_context_length": self.longest, "trainable": True}]}

    def _create_model(self, body: Any) -> Any:
        lora, id_ = body["lora_config"], f"{body['session_id']}:train:{body['model_seq_id']}"
        self.models[id_] = Model(
            self.base, lora["rank"], lora.get("seed"), lora["train_mlp"], lora["train_attn"], lora["train_unembed"]
        )
        return self._later({"type": "create_model", "model_id": id_})

    def _get_info(self, body: Any) -> Any:
        if (model := self.models.get(body["model_id"])) is None:
            return 404, {"detail": "no such model"}
        return {
            "type": "get_info",
            "model_id": body["model_id"],
            "model_data": {"model_name": self.name, "arch": "toy"},
            "is_lora": True,
            "lora_rank": model.rank,
        }

    def _load_weights(self, body: Any) -> Any:
        if (state := self.checkpoints.get(body["path"])) is None:
            return self._later({"error": f"checkpoint {body['path']} not found or expired", "category": "user"})
        id_ = f"{body['session_id']}:train:{body['model_seq_id']}"
        seed, mlp, attn, head = state["made_with"]
        model = self.models[id_] = Model(self.base, state["rank"], seed, mlp, attn, head)
        if body["optimizer"]:
            model.load(state)
        return self._later({"type": "load_weights", "path": body["path"], "model_id": id_})

    def _forward_backward(self, body: Any) -> Any:
        request = proto.ForwardBackwardRequest()
        request.ParseFromString(body)
        return self._in_turn(request.model_id, request.seq_id, lambda model: model.forward_backward(request))

    def _optim_step(self, body: Any) -> Any:
        return self._in_turn(body["model_id"], body["seq_id"], lambda model: model.optim_step(body["adam_params"]))

    def _save_weights(self, body: Any) -> Any:
        path = f"tinker://{body['model_id']}/weights/{body['path']}"

        def save_it(model: Model) -> Any:
            self.checkpoints[path] = model.saved()
            return {"type": "save_weights", "path": path}

        return self._in_turn(body["model_id"], body["seq_id"], save_it)

    def _save_weights_external(self, body: Any) -> Any:
        path = f"tinker://{body['model_id']}/external_weights/{body['path']}"

        def export(model: Model) -> Any:
            self.exports[path] = model.files()
            return {"type": "save_weights_external", "path": path}

        return self._in_turn(body["model_id"], body["seq_id"], export)

    def _checkpoint(self, method: str, route: str) -> Any:
        match = re.fullmatch(r"training_runs/([^/]+)/checkpoints/(\w+/[^/]+?)(/external_weights_urls)?", route)
        assert match is not None, route
        path = f"tinker://{match[1]}/{match[2]}"
        if method == "DELETE":
            self.exports.pop(path, None)
            self.checkpoints.pop(path, None)
            return {}
        if path not in self.exports:
            return 404, {"detail": "no such checkpoint"}
        expires = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
        signed = f"{self.url}/files/{path.removeprefix('tinker://')}"
        return {
            "urls": {name: f"{signed}/{name}?Signature=hush-hush" for name in self.exports[path]},
            "expires": expires,
        }

    def file(self, path: str) -> bytes | None:
        """A file behind a signed link."""
        owner, _, name = path.removeprefix("/files/").partition("?")[0].rpartition("/")
        return self.exports.get(f"tinker://{owner}", {}).get(name)

    def _retrieve_future(self, body: Any) -> Any:
        found = self.futures.get(body["request_id"])
        if found is None:
            return 404, {"detail": "no such request"}
        kind, result = found
        return {"type": "try_again", "queue_state": "active"} if kind == "waiting" else result

    def _later(self, result: Any) -> Any:
        id_ = f"request-{next(self._numbers)}"
        self.futures[id_] = ("done", result)
        return {"request_id": id_}

    def _in_turn(self, model_id: str, number: int, work: Any) -> Any:
        """Do this once all earlier requests about the model are done."""
        model = self.models.get(model_id)
        if model is None:
            return 404, {"detail": "no such model, or its session has ended"}
        id_ = f"request-{next(self._numbers)}"
        self.futures[id_] = ("waiting", None)
        model.waiting[number] = (id_, work)
        while model.next in model.waiting:
            ready, do = model.waiting.pop(model.next)
            model.next += 1
            self.futures[ready] = ("done", do(model))
        return {"request_id": id_, "model_id": model_id}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    service: TinkerServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""

    def _serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        raw = self.rfile.read(length)
        self.service.headers.append({name.lower(): value for name, value in self.headers.items()})
        if (fault := self.service.take_fault(self.path)) is not None:
            time.sleep(fault.delay_s)
            if fault.status is not None:
                self._send(fault.status, fault.body, fault.headers)
                return
        if self.path.startswith("/files/"):
            data = self.service.file(self.path)
            self._send(404 if data is None else 200, data or b"")
            return
        if self.headers.get("X-API-Key") != KEY:
            self._send(401, {"detail": "unknown key"})
            return
        is_json = "json" in self.headers.get("Content-Type", "") and raw
        answer = self.service.answer(self.command, self.path.partition("?")[0], json.loads(raw) if is_json else raw)
        status, answer = answer if isinstance(answer, tuple) else (200, answer)
        self._send(status, answer)

    do_GET = do_POST = do_DELETE = _serve  # noqa: N815 - the base class's names

    def _send(self, status: int, answer: Any, headers: Mapping[str, str] | None = None) -> None:
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        try:
            self.send_response(status)
            binary = "application/x-protobuf" if isinstance(answer, bytes) else "application/json"
            self.send_header("Content-Type", binary)
            self.send_header("Content-Length", str(len(data)))
            self.send_header("Connection", "close")  # the library never closes the client of its first request
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)
        except (BrokenPipeError, ConnectionResetError):  # nobody waits for it any more
            self.close_connection = True
