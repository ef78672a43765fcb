from app.engine.schema import Schema


def test_a_schema_written_and_read_again_is_the_same() -> None:
    wire = {
        "fields": [
            {"name": "shift", "type": "integer", "constraints": {"minimum": 0, "maximum": 20}}
        ]
    }
    schema = Schema.parse(wire)
    assert Schema.parse(schema.to_wire()) == schema
