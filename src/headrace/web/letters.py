"""Dead letters for pages and API: all topics that have some, one topic by cause, one letter with all it says."""

from headrace.client.dead_letters import LetterStatus, Listing
from headrace.web.bodies import row_of
from headrace.web.model import (
    DeadLettersPage,
    LetterChoice,
    LetterPage,
    LetterTopicRow,
)
from headrace.web.site import NotThere, Site
from headrace.wire.dead_letter import read_facts

LETTERS_SHOWN = 50
LETTERS_S = 4.0
"""How old an answer may be: reading dead letters means reading the topic."""


async def dead_letters_page(site: Site, topic: str | None) -> DeadLettersPage:
    async def find() -> tuple[str, ...]:
        return tuple(await site.source.admin.dead_letter_topics())

    topics = await site.cached(("dead-letter topics",), LETTERS_S, find)
    if topic is None and len(topics) == 1:
        topic = topics[0]
    if topic is not None:
        chosen = topic
        return await site.cached(("letters", chosen), LETTERS_S, lambda: _of_topic(site, topics, chosen))

    async def look() -> DeadLettersPage:
        await site.source.letters.refresh(topics)
        listings = (site.source.letters.listing(name) for name in topics)
        rows = tuple(_topic_row(listing) for listing in listings if listing is not None)
        ranked = tuple(sorted(rows, key=lambda row: (-row.waiting, -row.letters, row.topic)))
        return DeadLettersPage(topics=topics, topic=None, overview=ranked)

    return await site.cached(("letters of all",), LETTERS_S, look)


def _topic_row(listing: Listing) -> LetterTopicRow:
    causes = listing.causes()
    return LetterTopicRow(
        topic=listing.topic,
        letters=len(listing.letters),
        waiting=_waiting(listing),
        newest=max((letter.timestamp for letter in listing.letters), default=None),
        cause=causes[0].text if causes else None,
        cause_share=causes[0].count / len(listing.letters) if causes else None,
    )


def _waiting(listing: Listing) -> int:
    return sum(letter.status is LetterStatus.WAITING for letter in listing.letters)


async def _of_topic(site: Site, topics: tuple[str, ...], topic: str) -> DeadLettersPage:
    listing = await site.source.admin.dead_letters(topic)
    newest = sorted(listing.letters, key=lambda letter: -letter.timestamp)[:LETTERS_SHOWN]
    return DeadLettersPage(
        topics=topics,
        topic=topic,
        causes=tuple(listing.causes()),
        letters=tuple(newest),
        total=len(listing.letters),
        waiting=_waiting(listing),
        passed_over=listing.passed_over,
    )


async def letter_page(site: Site, choice: LetterChoice) -> LetterPage:
    key = ("letter", choice.topic, str(choice.partition), str(choice.offset))
    return await site.cached(key, LETTERS_S, lambda: _letter_page(site, choice))


async def _letter_page(site: Site, choice: LetterChoice) -> LetterPage:
    admin = site.source.admin
    record = await admin.dead_letter(choice.topic, choice.partition, choice.offset)
    facts = read_facts(record.headers)
    listing = await admin.dead_letters(choice.topic)
    place = choice.partition, choice.offset
    letter = next((one for one in listing.letters if (one.partition, one.offset) == place), None)
    if facts is None or letter is None:
        raise NotThere(
            f"record {choice.offset} of {choice.topic}-{choice.partition} is not a dead letter, or is too "
            "old to be listed"
        )
    return LetterPage(
        topic=choice.topic,
        partition=choice.partition,
        offset=choice.offset,
        timestamp=record.timestamp,
        status=letter.status.value,
        cause=letter.cause,
        message=facts.message,
        exception=facts.exception_text,
        traceback=facts.traceback,
        attempts=facts.attempts,
        delivery_count=facts.delivery_count,
        task=facts.task,
        worker=facts.worker,
        group_id=facts.group_id,
        source_topic=facts.topic,
        source_partition=facts.partition,
        source_offset=facts.offset,
        is_copied=letter.is_copied,
        record=row_of(record, choice.partition, whole=True),
    )
