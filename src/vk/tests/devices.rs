//! Finding devices and choosing one.

use super::*;
use crate::vk::capabilities::*;

/// A device that could be used, with one heap.
fn sample(index: usize, name: &str, kind: DeviceKind, gib: u64) -> Capabilities {
    let heaps = vec![Heap { size: gib << 30, device_local: true }];
    Capabilities {
        index,
        name: name.into(),
        vendor_id: 1,
        device_id: 1,
        driver: "driver".into(),
        driver_version: 1,
        driver_id: 0,
        conformance: [0; 4],
        api: Version { major: 1, minor: 3, patch: 0 },
        kind,
        pipeline_cache_uuid: [0; 16],
        subgroup: Subgroup { size: 32, in_compute: true, ops: vec!["basic", "arithmetic", "ballot"] },
        features: Features {
            timeline: Ok(()),
            address: Ok(()),
            sync2: Ok(Sync2::Core),
            scalar_layout: Ok(()),
            int64: Ok(()),
            int16: Ok(()),
            int8: Ok(()),
            float16: Ok(()),
            storage8: Ok(()),
            storage16: Ok(()),
            memory_model: Ok(()),
            dot_product: Ok(()),
            subgroup_sizes: Ok(SubgroupSizes { min: 32, max: 32, full: true, extension: false }),
            cooperative_matrix: Ok(Vec::new()),
            memory_budget: Ok(()),
            executable_properties: Ok(()),
            timestamps: Err(Missing::new("timestamps", "none")),
        },
        float_controls: FloatControls::default(),
        limits: Limits {
            storage_range: 1 << 30,
            storage_alignment: 16,
            storage_buffers: 32,
            sets: 4,
            push_constants: 128,
            shared_memory: 32768,
            group_count: [65535; 3],
            group_size: [1024; 3],
            group_invocations: 1024,
            allocation: 1 << 30,
            allocations: 4096,
        },
        queues: vec![QueueFamily {
            index: 0,
            count: 1,
            graphics: true,
            compute: true,
            transfer: true,
            timestamp_bits: 0,
        }],
        memory: MemoryLayout { heaps, types: Vec::new(), bar: Bar::None },
        usable: Ok(()),
        physical: ash::vk::PhysicalDevice::null(),
    }
}

#[test]
fn auto_takes_the_largest_card_and_never_the_processor() {
    let mut devices = vec![
        sample(0, "llvmpipe", DeviceKind::Cpu, 64),
        sample(1, "graphics in the processor", DeviceKind::Integrated, 32),
        sample(2, "small card", DeviceKind::Discrete, 8),
        sample(3, "large card", DeviceKind::Discrete, 16),
        sample(4, "Null hardware (RADV NAVI21)", DeviceKind::Discrete, 99),
    ];
    let auto = |devices: &[Capabilities]| pick(devices, Choice::Auto).map(|d| d.index);
    assert_eq!(auto(&devices).unwrap(), 3);
    devices[3].usable = Err(vec!["no timeline semaphores".into(), "no addresses".into()]);
    assert_eq!(auto(&devices).unwrap(), 2);
    devices.remove(2);
    assert_eq!(auto(&devices).unwrap(), 1);
    devices.remove(1);
    let error = auto(&devices).err().unwrap().to_string();
    assert_eq!(
        error,
        "no Vulkan device can be used; found: 0 llvmpipe (computes on the processor; used only when asked for by its \
         number); 3 large card (no timeline semaphores, no addresses); 4 Null hardware (RADV NAVI21) (compiles and \
         computes nothing)"
    );
    assert_eq!(pick(&devices, Choice::Index(0)).unwrap().name, "llvmpipe");
    let error = pick(&devices, Choice::Index(3)).err().unwrap().to_string();
    assert!(
        error.starts_with("Vulkan device 3 cannot be used: no timeline semaphores, no addresses; found: "),
        "{error}"
    );
    let error = pick(&devices, Choice::Index(7)).err().unwrap().to_string();
    assert!(error.starts_with("Vulkan device 7 cannot be used: there is none of that number; found: 0 "), "{error}");
    assert!(pick(&[], Choice::Auto).err().unwrap().to_string().ends_with("found none"));
}

#[test]
fn kernels_that_exchange_digits_demand_subgroups() {
    let mut device = sample(0, "any", DeviceKind::Discrete, 1);
    let asked = |d: &Capabilities, name: &str| d.subgroup_of(find(name).unwrap()).unwrap();
    assert_eq!((asked(&device, "linear.i4"), asked(&device, "linear.i4.plain")), (Some(32), None));
    device.vendor_id = 0x8086;
    device.features.subgroup_sizes = Ok(SubgroupSizes { min: 8, max: 32, full: true, extension: false });
    assert_eq!((asked(&device, "experts_up.e8"), asked(&device, "linear.bf16")), (Some(16), None));
    device.features.subgroup_sizes = Err(Missing::new("subgroupSizeControl", "the device does not offer it"));
    assert_eq!(asked(&device, "experts_down.i8"), None);
}

#[test]
fn what_stands_against_a_device_is_listed() {
    let mut device = sample(0, "old", DeviceKind::Discrete, 1);
    assert!(needs::against(&device).is_empty());
    device.features.timeline = Err(Missing::new("timelineSemaphore", "the device does not offer it"));
    device.subgroup.ops = vec!["basic"];
    device.subgroup.size = 2;
    device.queues.clear();
    let want = [
        "timelineSemaphore is not available: the device does not offer it",
        "no arithmetic subgroup operations",
        "no ballot subgroup operations",
        "no queue takes compute work",
        "subgroups of 2, 4 are needed",
    ];
    assert_eq!(needs::against(&device), want);
    device.api = Version { major: 1, minor: 1, patch: 9 };
    assert_eq!(needs::against(&device), ["Vulkan 1.2 is needed and this driver has 1.1.9"]);
}

#[test]
fn kernels_are_held_against_the_device() {
    let mut device = sample(0, "card", DeviceKind::Discrete, 1);
    device.features.float16 = Err(Missing::new("shaderFloat16", "the device does not offer it"));
    let asked = |number| needs::spirv_capability(&device, number).map_err(|m| m.to_string());
    assert_eq!((asked(1), asked(11), asked(63)), (Ok(()), Ok(()), Ok(())));
    assert_eq!(asked(9).unwrap_err(), "shaderFloat16 is not available: the device does not offer it");
    assert_eq!(asked(65).unwrap_err(), "shuffle subgroup operations is not available: the device has none");
    assert!(asked(10).unwrap_err().contains("never enables"));
}

#[test]
fn devices_are_listed_with_all_that_they_say() {
    let Some((instance, _)) = instance(Validation::Sync) else { return };
    let devices = list(&instance).unwrap();
    for device in &devices {
        assert!(!device.name.is_empty() && !device.queues.is_empty());
        let text = serde_json::to_string_pretty(device).unwrap();
        eprintln!("{text}");
    }
    silent(instance.messages());
}

#[test]
fn a_device_opens_and_closes_without_a_word() {
    let Some(bench) = bench() else { return };
    assert!(bench.device.capabilities().usable.is_ok());
    assert_eq!(
        bench.device.transfer().is_ok(),
        bench.device.capabilities().queues.iter().any(|q| q.transfer && !q.compute && !q.graphics)
    );
    bench.finish();
}
