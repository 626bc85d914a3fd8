"""mypy knows what a task takes: a wrong body is an error where it is sent."""

from mypy import api

PROGRAM = """
from dataclasses import dataclass
from headrace.client.delivery import Delivery
from headrace.worker import Batch, Queue

@dataclass
class Email:
    to: str

queue = Queue("localhost:9092", group_id="mailers")

@queue.task("emails")
async def send(email: Email, delivery: Delivery) -> None: ...

@queue.task("texts")
def text(body: str) -> int:
    return 1

@queue.task("bulk", batch=Batch(max=8), concurrency=2)
async def bulk(emails: list[Email], deliveries: list[Delivery]) -> list[Exception | None]:
    return [None for _ in emails]

@queue.task("sums", batch=Batch(max=8))
def add(numbers: list[int]) -> None: ...

bulk.send(Email("ada"))
add([1, 2])
bulk.send([Email("ada")])
add(1)
send.send(Email("ada"), key="k")
reveal_type(text("called directly"))
send.send({"wrong": 1})
text.send(7)
"""


def test_mypy_refuses_a_wrong_body(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    out, error, status = api.run([str(program), "--strict", "--no-error-summary"])
    assert error == ""
    assert 'Revealed type is "builtins.int"' in out or 'Revealed type is "int"' in out
    assert 'Argument 1 to "send" of "Task" has incompatible type "dict[str, int]"; expected "Email"' in out
    assert 'Argument 1 to "send" of "Task" has incompatible type "int"; expected "str"' in out
    assert 'Argument 1 to "send" of "Task" has incompatible type "list[Email]"; expected "Email"' in out
    assert 'Argument 1 to "__call__" of "BatchTask" has incompatible type "int"; expected "list[int]"' in out
    assert out.count("error:") == 4
    assert status == 1
