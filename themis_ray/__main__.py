"""``python -m themis_ray`` is the ``themis`` command."""

from themis_ray.cli.main import main

if __name__ == "__main__":
    main()
